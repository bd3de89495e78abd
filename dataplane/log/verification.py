"""Whether what a log would hand out is what was written: every batch's CRC, which nobody looks at on the way."""

from __future__ import annotations

from pathlib import Path

from ...protocol.errors import KafkaError
from .batch_walk import SCAN_CHUNK, BrokenBatch, walk_file
from .log_slice import LogSlice
from .storage_errors import damage


def check_slice(piece: LogSlice, of: Path) -> KafkaError | None:
    """What is wrong with the bytes of a slice of the log in the folder `of`; None if nothing is. Blocking.

    Raises:
        OSError: the disk refused to read them.
    """
    if piece.size == 0:
        return None
    end = piece.position + piece.size
    try:
        for _ in walk_file(
            piece.fileno(), piece.position, end, next_offset=0, verify_from=0, chunk=SCAN_CHUNK
        ):
            pass
    except BrokenBatch as broken:
        found = damage(of, broken.position, broken.reason)
        found.__cause__ = broken
        return found
    return None
