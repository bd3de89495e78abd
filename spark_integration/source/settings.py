"""The options of the source, read and checked once. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from ...client.arguments import topic_name
from ...client.objects.urls import parsed
from ...client.records import TopicPartition
from ...protocol.messages.list_offsets import EARLIEST, LATEST
from ..options import Queries, WrongOption, boolean, client_options, known_only, whole_number
from .option_table import OPTIONS
from .rows import INCLUDE_HEADERS

ISOLATION = "isolation"
ATOMIC, READ_COMMITTED, READ_UNCOMMITTED = "atomic", "read_committed", "read_uncommitted"
ISOLATIONS = (ATOMIC, READ_COMMITTED, READ_UNCOMMITTED)
CLIENT_OPTIONS: Mapping[str, type] = {
    "isolation_level": str,
    "client_rack": str,
    "check_crcs": bool,
    "fetch_max_wait_ms": int,
    "fetch_min_bytes": int,
    "fetch_max_bytes": int,
    "max_partition_fetch_bytes": int,
}
"""Options `kafka.*` of the consumer, in addition to those of every client."""
VALUE_BYTES_MAX = 64 * 1024 * 1024
_DURATION = re.compile(r"\s*(\d+)\s*(ms|s|sec|second|m|min|minute|h|hour|d|day)s?\s*")
_MS = {"ms": 1, "s": 1000, "sec": 1000, "second": 1000, "m": 60_000, "min": 60_000, "minute": 60_000}
_MS |= {"h": 3_600_000, "hour": 3_600_000, "d": 86_400_000, "day": 86_400_000}
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics to read: exactly one of the three fields is set."""

    names: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class Bound:
    """A beginning or end of reading: one value for all partitions, or a value for each named partition."""

    everywhere: int | None
    """EARLIEST or LATEST; None if the partitions have to be named."""
    timestamp_ms: int | None = None
    """Timestamp used instead of `everywhere`: reading begins at the first record that is not older."""
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    timestamps: Mapping[TopicPartition, int] = field(default_factory=dict)
    option: str = ""
    """Name of the option that set the bound, for messages."""


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """All options of the source. `isolation` is None if the cluster decides."""

    topics: Topics
    starting: Bound
    ending: Bound
    client: Mapping[str, Any]
    isolation: str | None
    fail_on_data_loss: bool = True
    include_headers: bool = False
    store_url: str | None = None
    """The object store of large values; None if rows have references to them."""
    value_bytes_max: int = VALUE_BYTES_MAX
    """The largest value in bytes that is fetched from the store."""
    late_timestamp: Literal["error", "latest"] = "error"
    """Reaction if no record is as recent as a starting timestamp."""
    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int = 15 * 60_000
    min_partitions: int | None = None
    records_per_partition: int | None = None
    progress_group: str | None = None


def read_settings(options: Mapping[str, str], *, streaming: bool) -> SourceSettings:
    """Read and check the options. Raises WrongOption with the wrong option and its allowed values."""
    given = known_only(options, OPTIONS)
    client = client_options(options, CLIENT_OPTIONS)
    _refuse_misplaced(given, streaming)
    minimum, maximum = _number(given, "minOffsetsPerTrigger"), _number(given, "maxOffsetsPerTrigger")
    if minimum is not None and maximum is not None and minimum > maximum:
        raise WrongOption(f"minOffsetsPerTrigger is {minimum}, above maxOffsetsPerTrigger, {maximum}")
    return SourceSettings(
        topics=_topics(given),
        starting=_bound(given, "starting", LATEST if streaming else EARLIEST),
        ending=_bound(given, "ending", LATEST),
        isolation=_isolation(given, client.pop("isolation_level", None)),
        client=client,
        fail_on_data_loss=_flag(given, "failOnDataLoss", True),
        include_headers=_flag(given, INCLUDE_HEADERS, False),
        store_url=_if_given(given, "largeMessageStore", _store),
        value_bytes_max=_number(given, "largeMessageMaxBytes") or VALUE_BYTES_MAX,
        late_timestamp=_strategy(given),
        max_offsets=maximum,
        min_offsets=minimum,
        max_delay_ms=_duration("maxTriggerDelay", given.get("maxTriggerDelay", "15m")),
        min_partitions=_number(given, "minPartitions"),
        records_per_partition=_number(given, "maxRecordsPerPartition"),
        progress_group=given.get("progressGroup") or None,
    )


def _refuse_misplaced(given: Mapping[str, str], streaming: bool) -> None:
    others, why = (
        (Queries.BATCH, "a stream does not end") if streaming else (Queries.STREAM, "a batch has no triggers")
    )
    misplaced = [row.name for row in OPTIONS if row.queries is others and row.name in given]
    if misplaced:
        raise WrongOption(f"option {misplaced[0]!r} is not for this kind of query: {why}")
    latest = given.get("startingOffsets", "").strip().lower() == "latest"
    if latest and not streaming:
        raise WrongOption(
            "startingOffsets of a batch query is earliest or JSON: from 'latest' on there is nothing"
        )
    if given.get("endingOffsets", "").strip().lower() == "earliest":
        raise WrongOption("endingOffsets is latest or JSON: up to 'earliest' there is nothing")


def _topics(given: Mapping[str, str]) -> Topics:
    ways = [name for name in ("subscribe", "subscribePattern", "assign") if name in given]
    if len(ways) != 1:
        what = "none of them is given" if not ways else f"{' and '.join(ways)} are given"
        raise WrongOption(
            f"what to read is named by one of the options subscribe, subscribePattern and assign; {what}"
        )
    text = given[ways[0]]
    if ways[0] == "subscribe":
        names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
        if not names:
            raise WrongOption(f"option 'subscribe' names topics, TOPIC,TOPIC, not {text!r}")
        return Topics(names=names)
    if ways[0] == "subscribePattern":
        if not text.strip():
            raise WrongOption(
                "option 'subscribePattern' is a regular expression for names of topics, and empty here"
            )
        return Topics(pattern=text.strip())
    return Topics(partitions=tuple(_assigned(text)))


def _assigned(text: str) -> list[TopicPartition]:
    form = 'is JSON like {"orders": [0, 1], "payments": [0]}'
    listed = _json("assign", text, form)
    partitions = []
    for topic, indexes in listed.items():
        if not isinstance(indexes, list) or not all(_whole(index, 0) for index in indexes):
            raise WrongOption(f"option 'assign' {form}; partitions of {topic!r} are {indexes!r}")
        partitions += [TopicPartition(topic_name(topic), index) for index in indexes]
    if not partitions:
        raise WrongOption(f"option 'assign' {form}; no partition is named in {text!r}")
    return list(dict.fromkeys(partitions))


def _bound(given: Mapping[str, str], which: str, default: int) -> Bound:
    """Read a bound. As in Spark's source, a timestamp for all partitions overrides timestamps by partition, and those
    override offsets.
    """
    if (name := f"{which}Timestamp") in given:
        return Bound(None, timestamp_ms=whole_number(name, given[name]), option=name)
    if (name := f"{which}OffsetsByTimestamp") in given:
        form = 'is JSON like {"orders": {"0": 1767225600000}}, in ms'
        return Bound(None, timestamps=_by_partition(name, given[name], form, 0), option=name)
    name = f"{which}Offsets"
    text = given.get(name, "").strip()
    ends = {"": default, "earliest": EARLIEST, "latest": LATEST}
    if text.lower() in ends:
        return Bound(ends[text.lower()], option=name)
    form = (
        'is earliest, latest or JSON like {"orders": {"0": 23, "1": -2}}, where -2 is earliest and -1 latest'
    )
    offsets = _by_partition(name, text, form, EARLIEST)
    excluded, word = (LATEST, "latest") if which == "starting" else (EARLIEST, "earliest")
    if (default != LATEST and which == "starting") or which == "ending":
        wrong = [partition for partition, offset in offsets.items() if offset == excluded]
        if wrong:
            where = f"{wrong[0].topic}-{wrong[0].partition}"
            raise WrongOption(
                f"option {name!r} has {excluded}, {word}, for {where}: there is nothing to read then"
            )
    return Bound(None, offsets=offsets, option=name)


def _by_partition(name: str, text: str, form: str, least: int) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for topic, entries in _json(name, text, form).items():
        if not isinstance(entries, dict):
            raise WrongOption(f"option {name!r} {form}; {topic!r} has {entries!r}")
        for index, number in entries.items():
            if not index.isdecimal() or not _whole(number, least):
                raise WrongOption(f"option {name!r} {form}; {topic!r} has {index!r}: {number!r}")
            found[TopicPartition(topic, int(index))] = number
    if not found:
        raise WrongOption(f"option {name!r} {form}; no partition is named in {text!r}")
    return found


def _json(name: str, text: str, form: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise WrongOption(f"option {name!r} {form}, not {text!r} ({error})") from None
    if not isinstance(found, dict):
        raise WrongOption(f"option {name!r} {form}, not {text!r}")
    return found


def _whole(given: object, least: int) -> bool:
    return isinstance(given, int) and not isinstance(given, bool) and given >= least


def _isolation(given: Mapping[str, str], level: str | None) -> str | None:
    """Return `isolation`, or `kafka.isolation.level`, which allows two of the three values."""
    asked = _choice(ISOLATION, given.get(ISOLATION), ISOLATIONS)
    level = _choice("kafka.isolation.level", level, (READ_COMMITTED, READ_UNCOMMITTED))
    if asked and level and asked != level:
        raise WrongOption(f"isolation is {asked}, and kafka.isolation.level {level}: give one of them")
    return asked or level


def _strategy(given: Mapping[str, str]) -> Literal["error", "latest"]:
    name = "startingOffsetsByTimestampStrategy"
    chosen = _choice(name, given.get(name), ("error", "latest"))
    return "latest" if chosen == "latest" else "error"


def _choice(name: str, value: str | None, choices: tuple[str, ...]) -> str | None:
    if value is None:
        return None
    chosen = value.strip().lower()
    if chosen not in choices:
        raise WrongOption(f"option {name!r} is {', '.join(choices[:-1])} or {choices[-1]}, not {value!r}")
    return chosen


def _if_given(given: Mapping[str, str], name: str, read: Callable[[str, str], T]) -> T | None:
    return read(name, given[name]) if name in given else None


def _number(given: Mapping[str, str], name: str) -> int | None:
    return _if_given(given, name, lambda name, value: whole_number(name, value, 1))


def _flag(given: Mapping[str, str], name: str, default: bool) -> bool:
    found = _if_given(given, name, boolean)
    return default if found is None else found


def _store(name: str, value: str) -> str:
    try:
        parsed(value)
    except ValueError as error:
        raise WrongOption(f"option {name!r}: {error}") from None
    return value


def _duration(name: str, value: str) -> int:
    found = _DURATION.fullmatch(value.lower())
    if found is None:
        raise WrongOption(f"option {name!r} is a time like 30s, 15m or 500ms, not {value!r}")
    return int(found[1]) * _MS[found[2]]
