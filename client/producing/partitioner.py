"""Which partition a record goes to: its key's murmur2 hash, as in the Java client; one sticky partition
without key.

The hash must agree with every other client's, or records of one key part ways: it is Kafka's murmur2, sign
bit cleared, modulo the number of partitions. Sticky choice: KIP-480 and KIP-794.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import unpack_from
from typing import Protocol

_M = 0x5BD1E995
_SEED = 0x9747B28C
_MASK = 0xFFFFFFFF

Partitioner = Callable[[bytes, int], int]
"""(key, number of partitions) -> partition index."""


def murmur2(data: bytes) -> int:
    """Kafka's 32-bit murmur2 of `data`, as an unsigned number."""
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
    """The partition of `key` among `partitions`, the same that the Java client chooses."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


class Sticky(Protocol):
    """Where a topic's records without key go."""

    sticky: int
    """The partition; -1 before the first was chosen."""
    sticky_left: int
    """Bytes before another is."""


class StickyChoice:
    """The partition for records without key: one at a time, changed once about `batch_bytes` went there.

    `draw(n)` answers a number below n: the caller brings the randomness.
    """

    def __init__(self, batch_bytes: int, draw: Callable[[int], int]) -> None:
        self._batch_bytes = batch_bytes
        self._draw = draw

    def choose(self, of: Sticky, available: Sequence[int], record_bytes: int) -> int:
        """The partition for a record of `record_bytes`; `available` are those with a leader, never empty."""
        if of.sticky_left <= 0 or of.sticky not in available:
            of.sticky = self._another(of.sticky, available)
            of.sticky_left = self._batch_bytes
        of.sticky_left -= record_bytes
        return of.sticky

    def _another(self, current: int, available: Sequence[int]) -> int:
        others = [partition for partition in available if partition != current] or list(available)
        return others[self._draw(len(others))]
