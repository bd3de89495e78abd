"""What `ottla audit` reads: the reports in the audit topic and, if wanted, the records that are in the log."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ....client.admin import Admin
from ....client.auditing.comparison import AuditWindow, NothingToCompare, Row, Tally, tiers_to_compare
from ....client.auditing.counts import DAY_MS, Counts, bucket_start
from ....client.auditing.handed_out import stamped
from ....client.auditing.reports import NoReport, parse_report
from ....client.auditing.settings import LOG_TIER
from ....client.consumer import Consumer
from ....client.consuming.reading import RECORDS_AT_A_TIME
from ....client.records import ConsumerRecord, TopicPartition
from ...arguments.selection import missing, select
from ...failures import CommandFailed

POLL_MS = 100
Partitions = Mapping[str, Collection[int]]
"""Of all topics of the cluster."""
Handle = Callable[[TopicPartition, Sequence[ConsumerRecord]], None]


@dataclass(frozen=True, slots=True)
class AuditQuestion:
    """See `commands.audit` for the meaning of each."""

    connection: Mapping[str, Any]
    """Keyword arguments of any client."""
    audit_topic: str
    topics: Sequence[str]
    tiers: Sequence[str]
    log: bool
    window: AuditWindow


@dataclass(slots=True)
class Audit:
    """What was found. `not_compared`: topics, and why. `unreadable`: how many records are no reports, and where the
    first of them is, and why."""

    rows: list[Row] = field(default_factory=list)
    not_compared: dict[str, str] = field(default_factory=dict)
    unreadable: int = 0
    first_unreadable: str = ""
    silent_tiers: list[str] = field(default_factory=list)
    """Tiers that were asked for, of which no report was read."""
    reports: int = 0
    repeated: int = 0


async def audit(question: AuditQuestion) -> Audit:
    """Read, and compare. Raises CommandFailed where there is nothing to compare."""
    async with Admin(**question.connection) as admin:
        # Asked for first, because a consumer's question would create it.
        existing = {topic.name: list(topic.partitions) for topic in await admin.describe_topics()}
    select(existing, [question.audit_topic], "topic", regex=False)
    found, tally = Audit(), Tally()
    await _read_reports(question, existing[question.audit_topic], tally, found)
    topics = list(question.topics) or tally.topics()
    for topic in topics:
        if topic not in tally.topics():
            raise CommandFailed(
                f"no reports on it were read: {missing(topic, tally.topics(), 'audited topic')}"
            )
    if not topics:
        raise CommandFailed(f"topic {question.audit_topic!r} holds no reports of this time")
    reporting = tally.tiers(topics)
    found.silent_tiers = [one for one in question.tiers if one not in reporting and one != LOG_TIER]
    for topic in topics:
        try:
            tiers = tiers_to_compare(tally.tiers([topic]), question.tiers, log=question.log)
        except NothingToCompare as error:
            found.not_compared[topic] = str(error)
            continue
        expired_ms = 0
        if LOG_TIER in tiers:
            expired_ms = await _read_log(question, topic, existing, tally)
        found.rows += tally.rows(topic, tiers, question.window, expired_ms)
    if not found.rows:
        why = "; ".join(f"{topic}: {reason}" for topic, reason in found.not_compared.items())
        raise CommandFailed(f"nothing to compare: {why or 'no bucket lies in this time'}")
    return found


async def _read_reports(question: AuditQuestion, indexes: Iterable[int], tally: Tally, found: Audit) -> None:
    wanted = set(question.topics)

    def handle(partition: TopicPartition, records: Sequence[ConsumerRecord]) -> None:
        for record in records:
            try:
                report = parse_report(record.value)
            except NoReport as error:
                found.unreadable += 1
                if not found.first_unreadable:
                    found.first_unreadable = (
                        f"partition {partition.partition}, offset {record.offset}: {error}"
                    )
                continue
            found.reports += 1
            if not wanted or report.bucket.topic in wanted:
                tally.add(report)

    # A report is not older than its bucket, and no bucket begins on another day than it ends.
    begin_ms = bucket_start(question.window.from_ms, DAY_MS)
    partitions = [TopicPartition(question.audit_topic, index) for index in indexes]
    async with _consumer(question.connection) as consumer:
        consumer.assign(partitions)
        consumer.seek_to_timestamp(begin_ms)
        await _read_to_the_end(consumer, "reading reports", handle)
    found.repeated = tally.repeated


async def _read_log(question: AuditQuestion, topic: str, existing: Partitions, tally: Tally) -> int:
    """Counts the records themselves, from the first bucket on of which there is a report. Returns before what time
    records may have been deleted, 0 if none were.
    """
    starts = tally.starts(topic, question.window)
    if not starts:
        return 0
    if topic not in existing:
        raise CommandFailed(f"its records cannot be counted: {missing(topic, existing, 'topic')}")
    counts = Counts(tally.bucket_ms(topic))
    first_stamps: dict[TopicPartition, int] = {}

    def handle(partition: TopicPartition, records: Sequence[ConsumerRecord]) -> None:
        first_stamps.setdefault(partition, records[0].timestamp_ms)
        counts.count(topic, [one for one in stamped(records) if one[0] >= starts[0]])

    partitions = [TopicPartition(topic, index) for index in existing[topic]]
    async with _consumer(question.connection) as consumer:
        consumer.assign(partitions)
        consumer.seek_to_timestamp(starts[0])
        positions = {one: await consumer.position(one) for one in partitions}
        beginnings = await consumer.beginning_offsets(partitions)
        await _read_to_the_end(consumer, f"counting {topic}", handle)
    tally.add_log(topic, counts)
    trimmed = [one for one in partitions if 0 < beginnings[one] == positions[one]]
    return max((first_stamps.get(one, question.window.to_ms) for one in trimmed), default=0)


def _consumer(connection: Mapping[str, Any]) -> Consumer:
    return Consumer(isolation_level="read_committed", auto_offset_reset="earliest", **connection)


async def _read_to_the_end(consumer: Consumer, what: str, handle: Handle) -> None:
    """All that is there now, with a bar on a terminal."""
    from rich.console import Console
    from rich.progress import Progress

    partitions = consumer.assignment()
    ends = await consumer.end_offsets(partitions)
    left = {one: ends[one] - await consumer.position(one) for one in partitions}
    total = sum(left.values())
    console = Console(stderr=True)
    with Progress(console=console, disable=not sys.stderr.isatty(), transient=True) as progress:
        bar = progress.add_task(what, total=total)
        while any(offsets > 0 for offsets in left.values()):
            for partition, records in (
                await consumer.getmany(timeout_ms=POLL_MS, max_records=RECORDS_AT_A_TIME)
            ).items():
                handle(partition, records)
            left = {one: ends[one] - await consumer.position(one) for one in partitions}
            progress.update(bar, completed=total - sum(max(0, offsets) for offsets in left.values()))
