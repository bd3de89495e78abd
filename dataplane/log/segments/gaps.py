"""Gaps between the offsets of a log, noted in a file beside its segments."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..durable_files import write_atomically
from ..storage_errors import damage, disk_error

GAPS_MARK = "offset-gaps"
"""The name of a file beside the segments. It says that the log has gaps between offsets, which recovery must not take
for damage.

Within segments a gap may be anywhere. Between two segments it may only be before a segment whose base offset the file
names, a line for each. Any other segment continues the segment before it, or records at that one's end are lost.

After the base offset the line has another offset, at which the log ends before the gap. So recovery can make the
segment if a crash came first. Otherwise the log would end there, below the offset that the replica has acknowledged.
"""


def mark_gaps(directory: Path) -> None:
    """Note permanently that the log in `directory` has gaps between offsets, as compaction leaves them. Raises
    KafkaError: KAFKA_STORAGE_ERROR."""
    try:
        (directory / GAPS_MARK).touch()
    except OSError as error:
        raise disk_error("create", directory / GAPS_MARK, error) from error


def note_gap(directory: Path, end_offset: int, base_offset: int) -> None:
    """Note permanently that the log has a gap from `end_offset` up to the segment at `base_offset`, with which the log
    ends.

    The segment is about to be made. Notes of later gaps are dropped, since they no longer hold. Raises KafkaError:
    KAFKA_STORAGE_ERROR.
    """
    kept = {base: end for base, end in noted_gaps(directory).items() if base <= end_offset}
    _write(directory, {**kept, base_offset: end_offset})


def forget_gaps(directory: Path, offset: int) -> None:
    """Note permanently that the log ends at `offset`, or is about to, so that there are no gaps after it. Raises
    KafkaError: KAFKA_STORAGE_ERROR."""
    noted = noted_gaps(directory)
    kept = {base: end for base, end in noted.items() if base <= offset}
    if kept != noted:
        _write(directory, kept)


def _write(directory: Path, noted: Mapping[int, int | None]) -> None:
    lines = [f"{base}\n" if end is None else f"{base} {end}\n" for base, end in sorted(noted.items())]
    write_atomically(directory / GAPS_MARK, "".join(lines).encode(), sync=True)


def has_gaps(directory: Path) -> bool:
    """Return whether `mark_gaps` or `note_gap` was called for this log."""
    return (directory / GAPS_MARK).exists()


def noted_gaps(directory: Path) -> Mapping[int, int | None]:
    """Return the base offsets of segments after gaps, with the log's end before each gap; None if that end was not
    noted. Raises KafkaError: KAFKA_STORAGE_ERROR."""
    path = directory / GAPS_MARK
    try:
        return dict(_gap(line) for line in path.read_text().splitlines())
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise disk_error("read", path, error) from error
    except ValueError as error:
        raise damage(path, 0, f"not one or two offsets on every line: {error}") from error


def _gap(line: str) -> tuple[int, int | None]:
    base, *end = (int(word) for word in line.split(" "))
    if len(end) > 1:
        raise ValueError(f"{line!r}")
    return base, end[0] if end else None
