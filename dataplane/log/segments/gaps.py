"""Where a log leaves offsets out, noted in a file beside its segments."""

from __future__ import annotations

from pathlib import Path

from ..durable_files import write_atomically
from ..storage_errors import damage, disk_error

GAPS_MARK = "offset-gaps"
"""A file beside the segments: the log leaves offsets out, so recovery must not take that for damage. Within segments it
may be anywhere. Between two of them only before those whose first offsets the file names, a line for each: any other
segment continues the one before it, or what that had at its end is lost."""


def mark_gaps(directory: Path) -> None:
    """Note for good that the log in `directory` leaves offsets out. Raises KafkaError: KAFKA_STORAGE_ERROR."""
    try:
        (directory / GAPS_MARK).touch()
    except OSError as error:
        raise disk_error("create", directory / GAPS_MARK, error) from error


def note_gap(directory: Path, base_offset: int) -> None:
    """Note for good that offsets are left out before the segment at `base_offset`, which is about to be made. Raises
    KafkaError: KAFKA_STORAGE_ERROR."""
    noted = sorted({*noted_gaps(directory), base_offset})
    write_atomically(directory / GAPS_MARK, "".join(f"{base}\n" for base in noted).encode(), sync=True)


def has_gaps(directory: Path) -> bool:
    """Whether `mark_gaps` or `note_gap` was called for it."""
    return (directory / GAPS_MARK).exists()


def noted_gaps(directory: Path) -> frozenset[int]:
    """The offsets given to `note_gap`. Raises KafkaError: KAFKA_STORAGE_ERROR."""
    path = directory / GAPS_MARK
    try:
        return frozenset(int(line) for line in path.read_text().splitlines())
    except FileNotFoundError:
        return frozenset()
    except OSError as error:
        raise disk_error("read", path, error) from error
    except ValueError as error:
        raise damage(path, 0, f"not an offset on every line: {error}") from error
