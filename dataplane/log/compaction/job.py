"""What the broker and its cleaning process say to each other: a line of JSON each."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from .keeping import LastRecord

LINE_BYTES_MAX = 64 << 20
"""Longest line: a log with the largest number of segments and producers."""


class MalformedLine(ValueError):
    """The line is cut short, too long, or says nothing that is known."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one round may use, by the broker's log.cleaner settings."""

    dedupe_bytes: int = 128 << 20
    load_factor: float = 0.9
    io_bytes_per_second: float = float("inf")
    io_buffer_bytes: int = 512 << 10


@dataclass(frozen=True, slots=True)
class CleaningJob:
    """Clean one log between two offsets."""

    directory: Path
    segments: Sequence[tuple[int, int]]
    """(base offset, size in bytes) of all inactive segments and of the active one, rising."""
    first_dirty_offset: int
    upper_bound: int
    high_watermark: int
    """Markers of the transactions below the upper bound lie below."""
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    producers: Mapping[int, LastRecord]
    limits: Limits = Limits()

    def encode(self) -> bytes:
        """As a line."""
        fields = {
            **asdict(self),
            "directory": str(self.directory),
            "segments": list(self.segments),
            "producers": [[producer_id, *last] for producer_id, last in self.producers.items()],
        }
        return json.dumps(fields).encode() + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> CleaningJob:
        """Raises MalformedLine."""
        try:
            fields = json.loads(line)
            return cls(
                **{
                    **fields,
                    "directory": Path(fields["directory"]),
                    "segments": [(base, size) for base, size in fields["segments"]],
                    "producers": {row[0]: LastRecord(row[1], row[2]) for row in fields["producers"]},
                    "limits": Limits(**fields["limits"]),
                }
            )
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise MalformedLine(f"no cleaning job: {error!r}") from error


@dataclass(frozen=True, slots=True)
class GroupCleaned:
    """Neighbouring segments are cleaned into one file, which is flushed."""

    segments: tuple[int, ...]
    """Bases of the old ones; the new one has the first of them."""
    file: Path
    bytes_before: int
    bytes_after: int


@dataclass(frozen=True, slots=True)
class LogCleaned:
    """All groups are done."""

    clean_offset: int
    """Below, every key now occurs once."""
    records_read: int
    records_kept: int
    unreadable_batches: int = 0
    """Copied as they are, as their records cannot be read."""
    first_unreadable_offset: int = -1
    """Of the first of them."""


@dataclass(frozen=True, slots=True)
class CleaningFailed:
    """The rest is not cleaned. What came before stands."""

    reason: str
    may_pass: bool
    """The log was cut or deleted meanwhile, or the disk is full: nothing is wrong with the log."""


Reply = GroupCleaned | LogCleaned | CleaningFailed
_REPLIES: Mapping[str, type[Reply]] = {
    kind.__name__: kind for kind in (GroupCleaned, LogCleaned, CleaningFailed)
}


def encode_reply(reply: Reply) -> bytes:
    """As a line."""
    fields = asdict(reply)
    if isinstance(reply, GroupCleaned):
        fields["file"] = str(reply.file)
    return json.dumps([type(reply).__name__, fields]).encode() + b"\n"


def decode_reply(line: bytes) -> Reply:
    """Raises MalformedLine."""
    try:
        name, fields = json.loads(line)
        reply = _REPLIES[name]
        if reply is GroupCleaned:
            fields |= {"file": Path(fields["file"]), "segments": tuple(fields["segments"])}
        return reply(**fields)
    except (ValueError, KeyError, TypeError) as error:
        raise MalformedLine(f"no reply of a cleaning process: {error!r}") from error


def read_line(stream: IO[bytes]) -> bytes | None:
    """The next whole line, None at the end. Raises MalformedLine."""
    line = stream.readline(LINE_BYTES_MAX)
    if not line:
        return None
    if not line.endswith(b"\n"):
        raise MalformedLine(f"a line of {len(line)} bytes has no end")
    return line
