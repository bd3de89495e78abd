"""The messages between the broker and its cleaning process, each a line of JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from ....protocol.settings.config_fields import setting
from .keeping import LastRecord

LINE_BYTES_MAX = 64 << 20
"""The longest line: a job for a log with the largest number of segments and producers."""


class MalformedLine(ValueError):
    """The error for a line that is cut short or too long, or is not a known message between the broker and its cleaning
    process."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one cleaning of a log (memory, buffer sizes, bytes per second), from the broker's log.cleaner
    settings."""

    dedupe_bytes: int = setting("log.cleaner.dedupe.buffer.size")
    load_factor: float = setting("log.cleaner.io.buffer.load.factor", float)
    io_bytes_per_second: float = setting("log.cleaner.io.max.bytes.per.second", float)
    io_buffer_bytes: int = setting("log.cleaner.io.buffer.size")


@dataclass(frozen=True, slots=True)
class CleaningJob:
    """A job for the cleaning process: compact one log, whose records from the first dirty offset to the upper bound are
    not compacted yet."""

    directory: Path
    segments: Sequence[tuple[int, int]]
    """Pairs (base offset, size in bytes) of all inactive segments and of the active one, rising."""
    first_dirty_offset: int
    upper_bound: int
    high_watermark: int
    """The offset below which all markers lie of transactions that begin below the upper bound."""
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    producers: Mapping[int, LastRecord]
    limits: Limits = Limits()

    def encode(self) -> bytes:
        """Return the cleaning job as a line of JSON."""
        fields = {
            **asdict(self),
            "directory": str(self.directory),
            "segments": list(self.segments),
            "producers": [[producer_id, *last] for producer_id, last in self.producers.items()],
        }
        return json.dumps(fields).encode() + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> CleaningJob:
        """Return the cleaning job in a line of JSON. Raises MalformedLine."""
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
    """A reply of the cleaning process: a group of neighbouring segments was cleaned into one file, which is flushed."""

    segments: tuple[int, ...]
    """Base offsets of the old segments. The new segment has the first of these base offsets."""
    file: Path
    bytes_before: int
    bytes_after: int


@dataclass(frozen=True, slots=True)
class LogCleaned:
    """The last reply to a cleaning job that succeeded: all groups of segments are cleaned."""

    clean_offset: int
    """The offset below which every key now occurs once."""
    records_read: int
    records_kept: int
    unreadable_batches: int = 0
    """The number of batches that were copied unchanged, because their records cannot be read."""
    first_unreadable_offset: int = -1
    """The base offset of the first unreadable batch; -1 if there was none."""


@dataclass(frozen=True, slots=True)
class CleaningFailed:
    """The last reply to a cleaning job that failed: some groups of segments are not cleaned. Groups that were reported
    before stay valid."""

    reason: str
    may_pass: bool
    """True if the log itself has no fault: it was cut or deleted meanwhile, or the disk is full."""


Reply = GroupCleaned | LogCleaned | CleaningFailed
_REPLIES: Mapping[str, type[Reply]] = {
    kind.__name__: kind for kind in (GroupCleaned, LogCleaned, CleaningFailed)
}


def encode_reply(reply: Reply) -> bytes:
    """Return a reply of the cleaning process as a line of JSON."""
    fields = asdict(reply)
    if isinstance(reply, GroupCleaned):
        fields["file"] = str(reply.file)
    return json.dumps([type(reply).__name__, fields]).encode() + b"\n"


def decode_reply(line: bytes) -> Reply:
    """Return the cleaning process's reply in a line of JSON. Raises MalformedLine."""
    try:
        name, fields = json.loads(line)
        reply = _REPLIES[name]
        if reply is GroupCleaned:
            fields |= {"file": Path(fields["file"]), "segments": tuple(fields["segments"])}
        return reply(**fields)
    except (ValueError, KeyError, TypeError) as error:
        raise MalformedLine(f"no reply of a cleaning process: {error!r}") from error


def read_line(stream: IO[bytes]) -> bytes | None:
    """Read the next whole line of a stream of messages; None at the stream's end. Raises MalformedLine if it is cut
    short or too long."""
    line = stream.readline(LINE_BYTES_MAX)
    if not line:
        return None
    if not line.endswith(b"\n"):
        raise MalformedLine(f"a line of {len(line)} bytes has no end")
    return line
