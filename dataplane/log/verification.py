"""Whether what a log would hand out is what was written, which nobody looks at on the way: every batch's CRC, and
what no CRC covers."""

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
    """What is wrong with the bytes of a slice of the log in the folder `of`, read from `offset`; None if nothing is.
    `epochs` are those of the log when it was read, `contiguous` says that it leaves no offset out. Blocking.

    Raises OSError if the disk refused to read them.
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
