"""Reads what people name on the command line: names or patterns, partitions, times, sizes, broker ids. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime

from ...protocol.iso_times import TIME_MS_MAX, iso_time_ms
from ...protocol.nearest import nearest
from ..failures import CommandFailed, UsageError

_PARTITIONS = re.compile(r"(?P<topic>[A-Za-z0-9._-]+)(?::(?P<list>[0-9,-]+))?")
_UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "ki": 1024, "mi": 1024**2, "gi": 1024**3}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmg]i?)?b?(?:/s)?", re.IGNORECASE)
_AGE = re.compile(r"(\d+)(ms|s|m|h|d)")
_AGE_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
MAX_RANGE = 100_000


def select(existing: Iterable[str], asked: Sequence[str], what: str, *, regex: bool) -> list[str]:
    """The existing names that were asked for, all if none was; patterns match whole names.

    Raises CommandFailed for a name that does not exist, or for patterns that match nothing. Raises UsageError for what
    is no regular expression.
    """
    names = sorted(existing)
    if not asked:
        return names
    if not regex:
        known = set(names)
        for name in asked:
            if name not in known:
                raise CommandFailed(missing(name, names, what))
        return list(dict.fromkeys(asked))
    patterns = [pattern(text) for text in asked]
    found = [name for name in names if any(one.fullmatch(name) for one in patterns)]
    if not found:
        raise CommandFailed(f"no {what} matches {' or '.join(asked)}")
    return found


def pattern(text: str) -> re.Pattern[str]:
    """A regular expression. Raises UsageError."""
    try:
        return re.compile(text)
    except re.error as error:
        raise UsageError(f"{text!r} is no regular expression: {error}") from None


def missing(name: str, existing: Iterable[str], what: str) -> str:
    """That there is no such thing, and what is nearest."""
    meant = nearest(name, existing)
    return f"there is no {what} {name!r}" + (f"; did you mean {meant!r}?" if meant else "")


def topic_partitions(text: str) -> tuple[str, list[int] | None]:
    """`topic`, `topic:0`, `topic:0,2-4`; None stands for all partitions. Raises UsageError."""
    match = _PARTITIONS.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} is no TOPIC or TOPIC:PARTITION,...")
    listed = match["list"]
    return match["topic"], None if listed is None else numbers_in(listed, text)


def named_partitions(texts: Iterable[str], existing: Mapping[str, Collection[int]]) -> list[tuple[str, int]]:
    """The partitions that `topic` and `topic:0,2-4` name. Raises CommandFailed for one that does not
    exist.
    """
    found: list[tuple[str, int]] = []
    for text in texts:
        topic, indexes = topic_partitions(text)
        if topic not in existing:
            raise CommandFailed(missing(topic, existing, "topic"))
        for index in existing[topic] if indexes is None else indexes:
            if index not in existing[topic]:
                raise CommandFailed(f"{topic} has partitions 0 to {len(existing[topic]) - 1}, not {index}")
            found.append((topic, index))
    return list(dict.fromkeys(found))


def partition_offsets(
    texts: Iterable[str], existing: Mapping[str, Collection[int]]
) -> dict[tuple[str, int], int] | None:
    """Return the offsets of `topic:0,2-4=50` and `topic=50` by partition, or None where no text has an offset.

    Raises UsageError where only some have one, or a partition has two, and CommandFailed for a partition that does not
    exist.
    """
    offsets: dict[tuple[str, int], int] = {}
    given = [(text, *text.partition("=")) for text in texts]
    if not any(equals for _, _, equals, _ in given):
        return None
    for text, where, _, offset in given:
        if not offset.isdecimal():
            raise UsageError(f"{text!r} is no TOPIC:PARTITION,...=OFFSET, as it has to be beside one")
        for partition in named_partitions([where], existing):
            if offsets.setdefault(partition, int(offset)) != int(offset):
                raise UsageError(
                    f"{partition[0]}-{partition[1]} has two offsets: {offsets[partition]} and {offset}"
                )
    return offsets


def numbers_in(text: str, where: str) -> list[int]:
    """`0,2-4` as numbers, in the order given. Raises UsageError."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise UsageError(f"{where!r}: {part!r} is no number and no range such as 2-4")
        low, high = int(first), int(last) if dash else int(first)
        if not low <= high < low + MAX_RANGE:
            raise UsageError(f"{where!r}: {part!r} is no range from a lower to a higher number")
        found += range(low, high + 1)
    return list(dict.fromkeys(found))


def broker_ids(text: str, flag: str) -> list[int]:
    """`1,2,3`: broker ids, preferred leader first. Raises UsageError."""
    parts = text.split(",")
    if not all(part.strip().isdecimal() for part in parts):
        raise UsageError(f"{flag} takes broker ids with commas between them, not {text!r}")
    ids = [int(part) for part in parts]
    if len(set(ids)) < len(ids):
        raise UsageError(f"{flag} names a broker twice: {text}")
    return ids


def timestamp_ms(text: str, now_ms: int) -> int:
    """Return the milliseconds since 1970 of `1700000000000`, of `2026-01-31T12:00:00Z` (UTC without a zone, as in
    Kafka's tools) or of `2h`, two hours ago. A time before 1970 becomes 1970. Raises UsageError.
    """
    milliseconds = _milliseconds(text, now_ms)
    if milliseconds is None or milliseconds > TIME_MS_MAX:
        raise UsageError(
            f"{text[:40]!r} is no time: write milliseconds since 1970, 2026-01-31T12:00:00Z, or 2h for two hours ago"
        )
    return max(0, milliseconds)


def _milliseconds(text: str, now_ms: int) -> int | None:
    try:
        if text.isdecimal():
            return int(text)
        if (age := _AGE.fullmatch(text)) is not None:
            return now_ms - int(age[1]) * _AGE_MS[age[2]]
        return iso_time_ms(text)
    except (ValueError, OverflowError):
        return None


def bytes_of(text: str, flag: str) -> int:
    """`1048576`, `10MB`, `64KiB`, `50MB/s` as a number of bytes. Raises UsageError."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{flag} takes a number of bytes such as 10MB or 1048576, not {text!r}")
    return int(float(match[1]) * _UNITS[(match[2] or "").lower()])


def milliseconds_of(text: str, flag: str) -> int:
    """`90s`, `15m`, `500ms` or a number of milliseconds. Raises UsageError."""
    if text.isdecimal():
        return int(text)
    if (age := _AGE.fullmatch(text)) is None:
        raise UsageError(f"{flag} takes a time such as 90s, 15m or 2h, not {text!r}")
    return int(age[1]) * _AGE_MS[age[2]]


def iso_time(milliseconds: int) -> str:
    """A time as people read it, in UTC; empty for none."""
    if milliseconds < 0:
        return ""
    try:
        stamp = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(milliseconds)
    return stamp.strftime("%Y-%m-%dT%H:%M:%S") + f".{milliseconds % 1000:03d}Z"
