"""The partition of a record: its key's murmur2 hash, as in the Java client, or one sticky partition for records without
key.

The hash must be that of every other client, or records of one key go to different partitions. It is Kafka's murmur2
with the sign bit cleared, modulo the number of partitions. The sticky choice follows KIP-480 and KIP-794.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import unpack_from
from typing import Protocol

_M = 0x5BD1E995
_SEED = 0x9747B28C
_MASK = 0xFFFFFFFF

Partitioner = Callable[[bytes, int], int]
"""A function of a key and a number of partitions that returns a partition index."""


def murmur2(data: bytes) -> int:
    """Return Kafka's 32-bit murmur2 of `data`, as an unsigned number."""
    length = len(data)
    h = _SEED ^ length
    words = length >> 2
    for k in unpack_from(f"<{words}I", data):
        k = k * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    if tail := data[words << 2 :]:
        h = (h ^ int.from_bytes(tail, "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


def murmur2_partition(key: bytes, partitions: int) -> int:
    """Return the partition of `key` among `partitions` partitions, as the Java client chooses it."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


class Sticky(Protocol):
    """The state of the sticky choice for a topic's records without key."""

    sticky: int
    """The partition; -1 before the first choice."""
    sticky_left: int
    """Number of bytes before another partition is chosen."""


class StickyChoice:
    """The choice of a partition for records without key. It changes after about `batch_bytes` went to a partition.

    `draw(n)` returns a random number below n.
    """

    def __init__(self, batch_bytes: int, draw: Callable[[int], int]) -> None:
        self._batch_bytes = batch_bytes
        self._draw = draw

    def choose(self, of: Sticky, available: Sequence[int], record_bytes: int) -> int:
        """Return the partition for a record of `record_bytes`; `available` are those with a leader, never empty."""
        if of.sticky_left <= 0 or of.sticky not in available:
            of.sticky = self._another(of.sticky, available)
            of.sticky_left = self._batch_bytes
        of.sticky_left -= record_bytes
        return of.sticky

    def _another(self, current: int, available: Sequence[int]) -> int:
        others = [partition for partition in available if partition != current] or list(available)
        return others[self._draw(len(others))]
