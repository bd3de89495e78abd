"""The first connection to a new mirror's source, so that the person who creates the mirror learns of mistakes."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.metadata import MetadataResponse
from ...protocol.messages.mirror_records import MirrorOption
from .options import MirrorOptions
from .source import SourceCluster, Sources, unreachable

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReachedSource:
    """A source cluster that has answered, with its id, its metadata, and the options by which it was reached."""

    source: SourceCluster
    cluster_id: str
    metadata: MetadataResponse
    options: list[MirrorOption]
    """Options of the mirror, secrets encrypted."""


class SourceCheck:
    """The check that a new mirror's source can be reached with the settings that the user gives."""

    def __init__(self, broker_id: int, sources: Sources | None, options: MirrorOptions) -> None:
        """Keep the id of the broker that checks, which its errors name.

        If `sources` is None, this process has no client that could reach a source.
        """
        self._broker_id = broker_id
        self._sources = sources
        self._options = options

    @asynccontextmanager
    async def reached(
        self, mirror: str, bootstrap_servers: str, options: Iterable[MirrorOption]
    ) -> AsyncIterator[ReachedSource]:
        """Connect to the source of a mirror, and keep the connection until the end of the context.

        Raises KafkaError: INVALID_REQUEST with the text of `unreachable` for every failure before the source has
        answered.
        """
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

    async def _first_answer(self, mirror: str, source: SourceCluster) -> MetadataResponse:
        try:
            return await source.metadata([])
        except KafkaError as error:
            # The source's own error hides its reason from clients, and carries it as its cause.
            reason = error.__cause__ or error
            logger.warning("the source of the new mirror %r cannot be reached: %r", mirror, str(reason))
            raise KafkaError(ErrorCode.INVALID_REQUEST, unreachable(self._broker_id)) from None
