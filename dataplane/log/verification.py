"""A check of records before they leave the log: every batch's CRC, and the header fields that no CRC covers. Reads for
consumers and followers do not check them."""

from __future__ import annotations

from pathlib import Path

from ...protocol.errors import KafkaError
from .leader_epochs import LeaderEpochs
from .segments.batch_walk import SCAN_CHUNK, walk_file
from .segments.log_slice import LogSlice
from .storage_errors import BrokenBatch, damage


def check_slice(
    piece: LogSlice, of: Path, epochs: LeaderEpochs, *, offset: int, contiguous: bool
) -> KafkaError | None:
    """Return the first fault in the bytes of a log slice (a CRC or a header field), or None. Blocking.

    The slice was read from `offset` of the log in folder `of`; `epochs` are the log's epochs when it was read.
    `contiguous` is True if the log has no gaps. Raises OSError if the disk refused to read the bytes.
    """
    if piece.size == 0:
        return None
    end = piece.position + piece.size
    try:
        next_offset: int | None = None
        for position, header in walk_file(
            piece.fileno(),
            piece.position,
            end,
            next_offset=0,
            epochs=epochs,
            verify_from=0,
            chunk=SCAN_CHUNK,
        ):
            first = next_offset is None and header.base_offset <= offset < header.next_offset
            if contiguous and not first and header.base_offset != next_offset:
                raise BrokenBatch(
                    position,
                    f"offset {header.base_offset} where {offset if next_offset is None else next_offset} is next",
                )
            next_offset = header.next_offset
    except BrokenBatch as broken:
        found = damage(of, broken.position, broken.reason)
        found.__cause__ = broken
        return found
    return None
