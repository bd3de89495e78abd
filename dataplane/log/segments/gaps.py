"""Where a log leaves offsets out, noted in a file beside its segments."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..durable_files import write_atomically
from ..storage_errors import damage, disk_error

GAPS_MARK = "offset-gaps"
"""A file beside the segments: the log leaves offsets out, so recovery must not take that for damage. Within segments it
may be anywhere. Between two of them only before those whose first offsets the file names, a line for each: any other
segment continues the one before it, or what that had at its end is lost.

Behind that offset the line has another, at which the log ends before the gap. So recovery can make the segment if a
crash came first: else the log would end there, below what the replica has acknowledged."""


def mark_gaps(directory: Path) -> None:
    """Note for good that the log in `directory` leaves offsets out. Raises KafkaError: KAFKA_STORAGE_ERROR."""
    try:
        (directory / GAPS_MARK).touch()
    except OSError as error:
        raise disk_error("create", directory / GAPS_MARK, error) from error


def note_gap(directory: Path, end_offset: int, base_offset: int) -> None:
    """Note for good that the log has nothing from `end_offset` up to the segment at `base_offset`, with which it ends.
    That is about to be made, and what is noted of gaps further on is not true any more. Raises KafkaError:
    KAFKA_STORAGE_ERROR."""
    kept = {base: end for base, end in noted_gaps(directory).items() if base <= end_offset}
    _write(directory, {**kept, base_offset: end_offset})


def forget_gaps(directory: Path, offset: int) -> None:
    """Note for good that the log ends at `offset`, or is about to: no gap lies behind. Raises KafkaError:
    KAFKA_STORAGE_ERROR."""
    noted = noted_gaps(directory)
    kept = {base: end for base, end in noted.items() if base <= offset}
    if kept != noted:
        _write(directory, kept)


def _write(directory: Path, noted: Mapping[int, int | None]) -> None:
    lines = [f"{base}\n" if end is None else f"{base} {end}\n" for base, end in sorted(noted.items())]
    write_atomically(directory / GAPS_MARK, "".join(lines).encode(), sync=True)


def has_gaps(directory: Path) -> bool:
    """Whether `mark_gaps` or `note_gap` was called for it."""
    return (directory / GAPS_MARK).exists()


def noted_gaps(directory: Path) -> Mapping[int, int | None]:
    """Where segments begin behind gaps, and where the log ends before each; None: nobody has noted that. Raises
    KafkaError: KAFKA_STORAGE_ERROR."""
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
