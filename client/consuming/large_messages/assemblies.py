"""The assemblies of one consumer: one for its reads, and one for each reader of its transactions."""

from __future__ import annotations

import logging
from dataclasses import replace

from .assembly import Assembly, AssemblyOptions, GivenUp, LargeMessageStats

logger = logging.getLogger("ottla.client.consumer")


class Assemblies:
    """A factory of assemblies (of large messages from their segments) with common statistics."""

    def __init__(self, *, enabled: bool, buffer_bytes: int, expiry_offsets: int) -> None:
        """Keep the options, which `Consumer` documents. Raises ValueError."""
        if min(buffer_bytes, expiry_offsets) < 1:
            raise ValueError("large_message_buffer_bytes and large_message_expiry_offsets are 1 or more")
        self._enabled = enabled
        self._options = AssemblyOptions(buffer_bytes, expiry_offsets)
        self.counts = LargeMessageStats()
        """The counts, which the assemblies change."""

    def new(self) -> Assembly | None:
        """Return an empty assembler of large messages; None if their segments are read as they are."""
        return Assembly(self._options, self.counts, _warn) if self._enabled else None

    def stats(self) -> LargeMessageStats:
        """Return the counts of large messages so far."""
        return replace(self.counts)


def _warn(lost: GivenUp) -> None:
    logger.warning(
        "a large message is given up: topic=%s partition=%d first_offset=%d last_offset=%d reason=%s",
        *lost.partition,
        lost.first_offset,
        lost.last_offset,
        lost.reason,
    )
