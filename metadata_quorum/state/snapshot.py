"""A stream of items (byte strings) for snapshots, which is cut into chunks of limited size, independent of item
boundaries.

A stream is a sequence of `u32 length | item`; an item larger than a chunk is spread over several. Both directions are
lazy: at most a chunk and an item are held in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct

from ...protocol.cluster.cluster_image import ImageInconsistent

CHUNK_BYTES = 256 * 1024
ITEM_BYTES_MAX = 128 * 1024 * 1024

_LENGTH = Struct(">I")


def cut(items: Iterable[bytes], chunk_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
    """Yield the items as a stream that is cut into chunks of `chunk_bytes`; the last chunk is shorter."""
    held = bytearray()
    for item in items:
        held += _LENGTH.pack(len(item))
        held += item
        if len(held) < chunk_bytes:
            continue
        whole = len(held) - len(held) % chunk_bytes
        for start in range(0, whole, chunk_bytes):
            yield bytes(held[start : start + chunk_bytes])
        del held[:whole]
    if held:
        yield bytes(held)


def joined(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the items of a stream from `cut` again. Raises ImageInconsistent if the stream ends within an item, or an
    item exceeds ITEM_BYTES_MAX."""
    held = bytearray()
    for chunk in chunks:
        held += chunk
        start = 0
        while len(held) - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(held, start)
            if length > ITEM_BYTES_MAX:
                raise ImageInconsistent(f"an item of a snapshot claims {length} bytes")
            end = start + _LENGTH.size + length
            if end > len(held):
                break
            yield bytes(held[start + _LENGTH.size : end])
            start = end
        del held[:start]
    if held:
        raise ImageInconsistent(f"a snapshot ends within an item, after {len(held)} bytes of it")
