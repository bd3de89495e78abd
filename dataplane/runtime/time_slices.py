"""Time slices: long work is cut into pieces, and other tasks have a turn of the event loop between two pieces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import TypeVar

from ...protocol.wire.schema import EncodedArray, Message

_T = TypeVar("_T")

_LARGE_STRUCTS = 2000

ITEMS_PER_TURN = 200
"""The number of items per turn if each takes some microseconds."""
MOVED_PER_TURN = 2_000
"""The number of moved items per turn, for readers that need at most a microsecond to find that an item needs no
work."""


async def in_time_slices(
    items: Iterable[_T], per_turn: int = ITEMS_PER_TURN, weight: Callable[[_T], int] = lambda _: 1
) -> AsyncIterator[_T]:
    """Yield the items, which may be generated lazily. Other tasks have a turn after every `per_turn` items.

    `weight` returns the number of items that an item counts for if it takes longer than others.
    """
    taken = 0
    for item in items:
        yield item
        taken += weight(item)
        if taken >= per_turn:
            taken = 0
            await asyncio.sleep(0)


def is_large(message: Message) -> bool:
    """Return whether the message takes milliseconds to encode."""
    return _structs(message, 0) >= _LARGE_STRUCTS


def _structs(message: Message, count: int) -> int:
    """Return `count` plus the number of structs in the message's arrays. Counting stops once the message is large."""
    for field in message.schema.fields:
        if field.kind == "array" and field.element is not None and field.element.kind == "struct":
            elements = getattr(message, field.name) or ()
            if isinstance(elements, EncodedArray):
                continue
            for inner in elements:
                count = _structs(inner, count + 1)
                if count >= _LARGE_STRUCTS:
                    return count
    return count


def pieces(items: Sequence[_T], size: int) -> list[Sequence[_T]]:
    """Return the items in slices of at most `size` items."""
    return [items[start : start + size] for start in range(0, len(items), size)]
