"""Conversion of command line values: names or patterns, partitions, times, sizes, broker ids. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime

from ...client.failures import seen_by
from ...protocol.iso_times import TIME_MS_MAX, iso_time_ms
from ...protocol.nearest import nearest
from ..failures import CommandFailed, NameMissing, UsageError

_PARTITIONS = re.compile(r"(?P<topic>[A-Za-z0-9._-]+)(?::(?P<list>[0-9,-]+))?")
_UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "ki": 1024, "mi": 1024**2, "gi": 1024**3}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmg]i?)?b?(?:/s)?", re.IGNORECASE)
_COUNT = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)([kmg])?", re.IGNORECASE)
_AGE = re.compile(r"(\d+)(ms|s|m|h|d)")
_AGE_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
MAX_RANGE = 100_000


def select(existing: Iterable[str], asked: Sequence[str], what: str, *, regex: bool) -> list[str]:
    """Return the existing names that were asked for, or all existing names if none was asked for.

    With `regex` the asked names are regular expressions that match whole names; `what` names the kind of thing in
    errors. Raises NameMissing for a name that does not exist, CommandFailed for patterns that match nothing, and
    UsageError for an invalid regular expression.
    """
    names = sorted(existing)
    if not asked:
        return names
    if not regex:
        known = set(names)
        for name in asked:
            if name not in known:
                raise name_missing(name, names, what)
        return list(dict.fromkeys(asked))
    patterns = [pattern(text) for text in asked]
    found = [name for name in names if any(expression.fullmatch(name) for expression in patterns)]
    if not found:
        raise CommandFailed(f"no {what} matches {' or '.join(asked)}")
    return found


def pattern(text: str) -> re.Pattern[str]:
    """Compile a regular expression. Raises UsageError if it is invalid."""
    try:
        return re.compile(text)
    except re.error as error:
        raise UsageError(f"{text!r} is no regular expression: {error}") from None


def missing(name: str, existing: Iterable[str], what: str, user: str | None = None) -> str:
    """Return the error text for a name that does not exist, with the nearest existing name.

    `what` is the kind of thing, such as `topic`. `user` is the user of the login, who may not see all of its kind.
    """
    return f"{_claim(name, what)}{seen_by(user)}{_hint(name, existing)}"


def name_missing(name: str, existing: Iterable[str], what: str) -> NameMissing:
    """Return the failure of a command for a name that a list of the cluster does not have, with the nearest name."""
    return NameMissing(_claim(name, what), _hint(name, existing))


def _claim(name: str, what: str) -> str:
    return f"there is no {what} {name!r}"


def _hint(name: str, existing: Iterable[str]) -> str:
    meant = nearest(name, existing)
    return f"; did you mean {meant!r}?" if meant else ""


def topic_partitions(text: str) -> tuple[str, list[int] | None]:
    """Parse `topic`, `topic:0` or `topic:0,2-4` into a topic and its partitions; None stands for all partitions.

    Raises UsageError.
    """
    match = _PARTITIONS.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} is no TOPIC or TOPIC:PARTITION,...")
    listed = match["list"]
    return match["topic"], None if listed is None else numbers_in(listed, text)


def named_partitions(texts: Iterable[str], existing: Mapping[str, Collection[int]]) -> list[tuple[str, int]]:
    """Return the (topic, partition) pairs that texts such as `topic` and `topic:0,2-4` name.

    `existing` has the partitions of each topic.

    Raises NameMissing for a topic that does not exist, and CommandFailed for such a partition.
    """
    found: list[tuple[str, int]] = []
    for text in texts:
        topic, indexes = topic_partitions(text)
        if topic not in existing:
            raise name_missing(topic, existing, "topic")
        for index in existing[topic] if indexes is None else indexes:
            if index not in existing[topic]:
                raise CommandFailed(f"{topic} has partitions 0 to {len(existing[topic]) - 1}, not {index}")
            found.append((topic, index))
    return list(dict.fromkeys(found))


def partition_offsets(
    texts: Iterable[str], existing: Mapping[str, Collection[int]]
) -> dict[tuple[str, int], int] | None:
    """Parse texts such as `topic:0,2-4=50` and `topic=50` into offsets by partition; None if no text has an offset.

    Raises UsageError if only some texts have an offset or a partition has two, and CommandFailed for a partition that
    does not exist.
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
    """Parse a list of numbers such as `0,2-4`, and return them in the given order.

    `where` is the argument that errors quote. Raises UsageError.
    """
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
    """Return the broker ids of a list such as `1,2,3`, preferred leader first. Raises UsageError."""
    parts = text.split(",")
    if not all(part.strip().isdecimal() for part in parts):
        raise UsageError(f"{flag} takes broker ids with commas between them, not {text!r}")
    ids = [int(part) for part in parts]
    if len(set(ids)) < len(ids):
        raise UsageError(f"{flag} names a broker twice: {text}")
    return ids


def timestamp_ms(text: str, now_ms: int) -> int:
    """Return the milliseconds since 1970 of a time.

    The time is `1700000000000`, `2026-01-31T12:00:00Z` (UTC without a zone, as in Kafka's tools) or an age such as
    `2h`. A time before 1970 becomes 1970. Raises UsageError.
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
    """Return the number of bytes of a size such as `1048576`, `10MB`, `64KiB` or `50MB/s`. Raises UsageError."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{flag} takes a number of bytes such as 10MB or 1048576, not {text!r}")
    return int(float(match[1]) * _UNITS[(match[2] or "").lower()])


def count_of(text: str, flag: str) -> int:
    """Return the number of a text such as `2000`, `2k` or `1.5M`, at least 1. Raises UsageError."""
    match = _COUNT.fullmatch(text.strip())
    count = 0.0 if match is None else float(match[1]) * _UNITS[(match[2] or "").lower()]
    if count < 1 or not count.is_integer():
        raise UsageError(f"{flag} takes a number from 1 on, such as 2000, 2k or 1M, not {text[:40]!r}")
    return int(count)


def milliseconds_of(text: str, flag: str) -> int:
    """Return the milliseconds of a duration such as `90s`, `15m`, `500ms` or a plain number. Raises UsageError."""
    if text.isdecimal():
        return int(text)
    if (age := _AGE.fullmatch(text)) is None:
        raise UsageError(f"{flag} takes a time such as 90s, 15m or 2h, not {text!r}")
    return int(age[1]) * _AGE_MS[age[2]]


def duration_text(seconds: float) -> str:
    """Format a duration: `4s`, `5m12s`, `2h1m2s`, `3d4h`. A negative duration is 0."""
    minutes, left = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d{hours}h"
    parts = ((hours, "h"), (minutes, "m"), (left, "s"))
    first = next((number for number, (count, _) in enumerate(parts) if count), 2)
    return "".join(f"{count}{unit}" for count, unit in parts[first:])


def second_text(milliseconds: int) -> str:
    """Format a time in UTC as ISO 8601, without milliseconds."""
    return re.sub(r"\.\d{3}Z$", "Z", iso_time(milliseconds))


def iso_time(milliseconds: int) -> str:
    """Format a time in UTC as ISO 8601; a negative time gives an empty text."""
    if milliseconds < 0:
        return ""
    try:
        stamp = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(milliseconds)
    return stamp.strftime("%Y-%m-%dT%H:%M:%S") + f".{milliseconds % 1000:03d}Z"
