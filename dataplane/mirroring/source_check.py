"""The first time that a source is reached, so that a mistake is told to whom it can be told."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.metadata import MetadataResponse
from ...protocol.messages.mirror_records import MirrorOption
from .options import MirrorOptions
from .source import UNREACHABLE, SourceCluster, Sources

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReachedSource:
    """A source that has answered."""

    source: SourceCluster
    cluster_id: str
    metadata: MetadataResponse
    options: list[MirrorOption]
    """With their secrets encrypted."""


class SourceCheck:
    """Reaches sources as people describe them."""

    def __init__(self, sources: Sources | None, options: MirrorOptions) -> None:
        """Without `sources` this process has no client to reach a source with."""
        self._sources = sources
        self._options = options

    @asynccontextmanager
    async def reached(
        self, mirror: str, bootstrap_servers: str, options: Iterable[MirrorOption]
    ) -> AsyncIterator[ReachedSource]:
        """Reach the source of a mirror, until the end of the context. Raises KafkaError: INVALID_REQUEST with the text
        `UNREACHABLE` for all that goes wrong before the source has answered."""
        if self._sources is None:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, "this process was started without a client for sources"
            )
        given = {option.name: option.value for option in options}
        source = self._sources.open(bootstrap_servers, given)
        try:
            metadata = await self._first_answer(mirror, source)
            if metadata.cluster_id is None:
                raise KafkaError(
                    ErrorCode.UNSUPPORTED_VERSION, f"{bootstrap_servers} tells no cluster id: it is too old"
                )
            sealed = self._options.seal(self._sources, mirror, given)
            kept = [MirrorOption(name=name, value=value) for name, value in sealed.items()]
            yield ReachedSource(source, metadata.cluster_id, metadata, kept)
        finally:
            await source.close()

    @staticmethod
    async def _first_answer(mirror: str, source: SourceCluster) -> MetadataResponse:
        try:
            return await source.metadata([])
        except KafkaError as error:
            logger.warning("the source of the new mirror %r cannot be reached: %r", mirror, error.message)
            raise KafkaError(ErrorCode.INVALID_REQUEST, UNREACHABLE) from None
