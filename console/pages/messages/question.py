"""Searches for records of a topic, as a page's query describes them: the first offset, the number, and filters.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ....client.record_filters import RecordTest
from ....client.records import TopicPartition
from ....protocol.iso_times import TIME_MS_MAX, iso_time_ms
from ...area import BadQuestion, Visit
from ...bounds import ROWS_MAX
from ...commands import command, option
from ...formats import link
from .filters import FILTERS, filters_of
from .payloads import FORMATS

NEWEST, START, OFFSET, TIME = "newest", "start", "offset", "time"
WHERE: Final = (NEWEST, START, OFFSET, TIME)
ALL: Final = "all"
"""The value of the query parameter `open` with which all records are open."""
OPTIONS: Final = {"key": "--key", "value": "--grep", "json": "--where", "header": "--header"}
"""The options of `ottla consume` that filter as the page does, by the names of the page's filters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A search for records of a topic.

    `where` is one of WHERE, `at` is an offset or a time in ms since 1970, `count` is the number of records. `texts` are
    the filters as the user typed them.
    """

    topic: str
    partition: int | None
    where: str
    at: int
    count: int
    shows_as: str
    is_committed_only: bool
    tests: Sequence[RecordTest]
    texts: Mapping[str, str]
    opens_all: bool = False
    """True if the page shows all records open."""

    @property
    def looks_into_values(self) -> bool:
        """True if a filter needs record values decoded by their schemas."""
        return bool(self.texts.get("json"))

    def address(self, path: str = "/messages") -> str:
        """Return the URL of the messages page with this search as query string."""
        given: dict[str, object] = {
            "topic": self.topic,
            "partition": self.partition,
            "from": self.where,
            "at": self.texts.get("at") or None,
            "count": self.count,
            "as": self.shows_as,
            "committed": "yes" if self.is_committed_only else None,
            **{name: self.texts.get(name) or None for name in FILTERS},
            "open": ALL if self.opens_all else None,
        }
        return link(path, **given)

    def without_filters(self) -> Question:
        """Return the search without its filters."""
        return replace(self, tests=(), texts={"at": self.texts.get("at", "")})

    def newest(self) -> Question:
        """Return the search for the newest records, with the same filters."""
        return replace(self, where=NEWEST, texts={**self.texts, "at": ""})

    def all_open(self, *, is_open: bool) -> Question:
        """Return the search with all records open, or with all records closed."""
        return replace(self, opens_all=is_open)

    def command(self, *, decodes_values: bool = False) -> str:
        """Return the `ottla consume` command that reads the same records.

        With `decodes_values` the filter by a JSON path is left out: the command line decodes no values by schemas.
        """
        where = {
            NEWEST: f"-{self.count}",
            START: "beginning",
            OFFSET: str(self.at),
            TIME: f"@{self.at}",
        }[self.where]
        words = [f"--offset={where}", "-e"]
        words += [] if self.partition is None else ["-p", str(self.partition)]
        words += [] if self.where == NEWEST else ["-c", str(self.count)]
        words += ["--committed"] if self.is_committed_only else []
        for name, flag in OPTIONS.items():
            if (text := self.texts.get(name)) and not (name == "json" and decodes_values):
                words += option(flag, text)
        return command("consume", names=[self.topic], options=words)

    def sending_command(self) -> str:
        """Return the `ottla produce` command that sends records to the topic."""
        return command("produce", names=[self.topic])


def question_of(visit: Visit) -> Question:
    """Return the search for records that the page's query describes. Raises BadQuestion."""
    where = visit.text("from", NEWEST)
    if where not in WHERE:
        raise BadQuestion(f"'from' is one of {', '.join(WHERE)}, not {where[:40]!r}")
    if (shows_as := visit.text("as", "auto")) not in FORMATS:
        raise BadQuestion(f"'as' is one of {', '.join(FORMATS)}, not {shows_as[:40]!r}")
    at = 0
    if where == OFFSET:
        at = visit.number("at")
    elif where == TIME:
        at = time_ms(visit.required("at"))
    if (opened := visit.text("open")) not in ("", ALL):
        raise BadQuestion(f"'open' is {ALL} or missing, not {opened[:40]!r}")
    filters = {name: visit.text(name) for name in FILTERS}
    return Question(
        topic=visit.required("topic"),
        partition=visit.number("partition", most=2**31 - 1) if visit.text("partition") else None,
        where=where,
        at=at,
        count=visit.number("count", 20, least=1, most=ROWS_MAX),
        shows_as=shows_as,
        is_committed_only=visit.text("committed") == "yes",
        tests=filters_of(filters),
        texts={**filters, "at": visit.text("at")},
        opens_all=opened == ALL,
    )


def time_ms(text: str) -> int:
    """Parse a time in ISO 8601, UTC without a zone, or in ms since 1970. Raises BadQuestion."""
    try:
        found = int(text) if text.isdecimal() and len(text) > 8 else iso_time_ms(text)
    except ValueError:
        found = TIME_MS_MAX + 1
    if found > TIME_MS_MAX:
        raise BadQuestion(f"a time is 2026-01-31T12:00:00Z or ms since 1970, not {text[:40]!r}")
    return found


def begin_at(
    question: Question,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    by_time: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """Return the offset at which a search begins to read each partition.

    `starts` and `ends` are the partitions' offsets; `by_time` has the offsets at the time that was asked for.
    Partitions without such records are left out.
    """
    found = {}
    for partition, end in ends.items():
        start = starts[partition]
        match question.where:
            case "offset":
                offset = max(start, question.at)
            case "time":
                offset = end if (timed := by_time.get(partition, -1)) < 0 else timed
            case "newest":
                offset = max(start, end - question.count)
            case _:
                offset = start
        if offset < end:
            found[partition] = offset
    return found
