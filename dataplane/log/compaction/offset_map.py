"""A map from each key to its last offset, in a bounded amount of memory."""

from __future__ import annotations

import struct
from hashlib import blake2b

_HASH_BYTES = 16
_SLOT = struct.Struct(">16sq")
_FREE = bytes(_HASH_BYTES)
_OFFSET = struct.Struct(">q")
SLOT_BYTES = _SLOT.size
"""Memory per slot: a 128-bit hash of the key, and an offset."""
LEAST_BYTES = 1024 * SLOT_BYTES


class OffsetMap:
    """A map from key hashes to offsets, by open addressing in one block of memory, like Kafka's `SkimpyOffsetMap`.

    Keys are not stored, so two keys with the same 128-bit hash would count as one. Offsets must be put in rising order.
    Invariant: at least one slot is free.
    """

    __slots__ = ("_most", "_slots", "_table", "latest_offset", "size")

    def __init__(self, memory_bytes: int, load_factor: float) -> None:
        """Create an empty map in this amount of memory. `load_factor` (0 to 1) is the part of the memory that is filled
        before the map counts as full."""
        self._slots = max(memory_bytes, LEAST_BYTES) // SLOT_BYTES
        self._most = min(int(self._slots * load_factor), self._slots - 1)
        self._table = bytearray(self._slots * SLOT_BYTES)
        self.size = 0
        self.latest_offset = -1
        """The offset up to which, inclusive, every record of the scanned range has been put."""

    @property
    def full(self) -> bool:
        """True if the map has no room for another key."""
        return self.size >= self._most

    def put(self, key: bytes, offset: int) -> bool:
        """Store `offset` as the last offset of `key`. Returns False, and stores nothing, if the map is full."""
        if self.size >= self._most:
            return False
        digest = blake2b(key, digest_size=_HASH_BYTES).digest()
        table, slots = self._table, self._slots
        slot = int.from_bytes(digest[:8], "big") % slots
        while True:
            at = slot * SLOT_BYTES
            held = table[at : at + _HASH_BYTES]
            if held == digest:
                break
            if held == _FREE:
                self.size += 1
                break
            slot = slot + 1 if slot + 1 < slots else 0
        _SLOT.pack_into(table, at, digest, offset)
        return True

    def get(self, key: bytes) -> int:
        """Return the last offset stored for `key`; -1 if the map has no such key."""
        digest = blake2b(key, digest_size=_HASH_BYTES).digest()
        table, slots = self._table, self._slots
        slot = int.from_bytes(digest[:8], "big") % slots
        while True:
            at = slot * SLOT_BYTES
            held = table[at : at + _HASH_BYTES]
            if held == digest:
                offset: int = _OFFSET.unpack_from(table, at + _HASH_BYTES)[0]
                return offset
            if held == _FREE:
                return -1
            slot = slot + 1 if slot + 1 < slots else 0
