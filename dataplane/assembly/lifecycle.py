"""The start and the end of a broker's parts, in a fixed order."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Protocol


class StartedPart(Protocol):
    """A part of the broker that works only after its `start` was called."""

    def start(self) -> object:
        """Begin to work."""
        ...


class ClosedPart(Protocol):
    """A part of the broker that has to be stopped when the broker ends."""

    def close(self) -> Awaitable[None] | None:
        """Stop the part's work; return an awaitable if that takes time."""
        ...


async def close_all(parts: Sequence[ClosedPart]) -> None:
    """Close each part once the part before it is closed."""
    for part in parts:
        closing = part.close()
        if closing is not None:
            await closing
