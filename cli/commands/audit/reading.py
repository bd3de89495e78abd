"""The input of `ottla audit`: reports of the audit topic and, on request, counts of the records in logs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ....client.admin import Admin
from ....client.auditing.comparison import AuditWindow, NothingToCompare, Row, Tally, tiers_to_compare
from ....client.auditing.counts import DAY_MS, Counts, bucket_start
from ....client.auditing.reports import NoReport, parse_report
from ....client.auditing.settings import LOG_TIER, is_log_tier
from ....client.consumer import Consumer
from ....client.consuming.handed_out import stamped
from ....client.consuming.reading import RECORDS_AT_A_TIME
from ....client.records import ConsumerRecord, TopicPartition
from ...arguments.selection import missing, select
from ...failures import CommandFailed
from ...terminal.progress import progress_bar

POLL_MS = 100
Partitions = Mapping[str, Collection[int]]
"""The partitions of each topic of the cluster."""
Handle = Callable[[TopicPartition, Sequence[ConsumerRecord]], None]


@dataclass(frozen=True, slots=True)
class LogCopy:
    """Another cluster with copies of the audited topics; its records count as the tier `tier`."""

    tier: str
    connection: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Log:
    """A cluster whose records are counted as the tier `tier`."""

    tier: str
    connection: Mapping[str, Any]
    existing: Partitions


@dataclass(frozen=True, slots=True)
class AuditQuestion:
    """The arguments of `ottla audit`; `commands.audit` describes each as an option."""

    connection: Mapping[str, Any]
    """Keyword arguments that every client of the cluster takes."""
    audit_topic: str
    topics: Sequence[str]
    tiers: Sequence[str]
    log: bool
    """True to count the records in the log. The log is counted in any case if there are copies, which are compared
    with it."""
    window: AuditWindow
    copies: Sequence[LogCopy] = ()


@dataclass(slots=True)
class Audit:
    """The result of an audit: a row for each compared bucket of a topic.

    `not_compared` maps topics to the reason. `unreadable` is the number of records of the audit topic that are no
    reports; `first_unreadable` describes the first of them.
    """

    rows: list[Row] = field(default_factory=list)
    not_compared: dict[str, str] = field(default_factory=dict)
    unreadable: int = 0
    first_unreadable: str = ""
    silent_tiers: list[str] = field(default_factory=list)
    """Tiers that the question names but that sent no report."""
    reports: int = 0
    repeated: int = 0


async def audit(question: AuditQuestion) -> Audit:
    """Read the audit reports and, if asked for, the logs, and compare the tiers' counts.

    Raises CommandFailed if there is nothing to compare.
    """
    # Topics are listed before they are read, because a consumer's metadata request would create missing topics.
    existing = await _partitions(question.connection)
    logs = [_Log(LOG_TIER, question.connection, existing)] if question.log or question.copies else []
    logs += [_Log(copy.tier, copy.connection, await _partitions(copy.connection)) for copy in question.copies]
    found, tally = Audit(), Tally()
    if question.audit_topic in existing or not (question.copies and question.topics):
        select(existing, [question.audit_topic], "topic", regex=False)
        await _read_reports(question, existing[question.audit_topic], tally, found)
    topics = list(question.topics) or tally.topics()
    for topic in topics:
        if topic not in tally.topics() and not question.copies:
            raise CommandFailed(
                f"no reports on it were read: {missing(topic, tally.topics(), 'audited topic')}"
            )
    if not topics:
        raise CommandFailed(f"topic {question.audit_topic!r} holds no reports of this time")
    reporting = tally.tiers(topics)
    found.silent_tiers = [tier for tier in question.tiers if tier not in reporting and not is_log_tier(tier)]
    for topic in topics:
        await _compare(question, topic, logs, tally, found)
    if not found.rows:
        why = "; ".join(f"{topic}: {reason}" for topic, reason in found.not_compared.items())
        raise CommandFailed(f"nothing to compare: {why or 'no bucket lies in this time'}")
    return found


async def _partitions(connection: Mapping[str, Any]) -> Partitions:
    async with Admin(**connection) as admin:
        return {topic.name: list(topic.partitions) for topic in await admin.describe_topics()}


async def _compare(
    question: AuditQuestion, topic: str, logs: Sequence[_Log], tally: Tally, found: Audit
) -> None:
    try:
        tiers = tiers_to_compare(
            tally.tiers([topic]),
            question.tiers,
            log=bool(logs),
            copies=[copy.tier for copy in question.copies],
        )
    except NothingToCompare as error:
        found.not_compared[topic] = str(error)
        return
    starts = tally.starts(topic, question.window)
    length = tally.bucket_ms(topic)
    first_ms = bucket_start(question.window.from_ms, length) if question.copies else None
    if starts:
        first_ms = starts[0]
    expired_ms = 0
    for log in logs:
        if log.tier in tiers and first_ms is not None:
            counts, deleted_before_ms = await _read_log(log, topic, first_ms, length, question.window)
            tally.add_log(topic, counts, log.tier)
            expired_ms = max(expired_ms, deleted_before_ms)
    found.rows += tally.rows(topic, tiers, question.window, expired_ms)


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


async def _read_log(
    log: _Log, topic: str, first_ms: int, bucket_ms: int, window: AuditWindow
) -> tuple[Counts, int]:
    """Count a topic's records in the time buckets from `first_ms` on.

    Also returns the time in ms before which records may have been deleted, 0 if none were.
    """
    if topic not in log.existing:
        where = "" if log.tier == LOG_TIER else f" of tier {log.tier}"
        raise CommandFailed(f"its records{where} cannot be counted: {missing(topic, log.existing, 'topic')}")
    counts = Counts(bucket_ms)
    first_stamps: dict[TopicPartition, int] = {}

    def handle(partition: TopicPartition, records: Sequence[ConsumerRecord]) -> None:
        first_stamps.setdefault(partition, records[0].timestamp_ms)
        counts.count(topic, [stamp for stamp in stamped(records) if stamp[0] >= first_ms])

    partitions = [TopicPartition(topic, index) for index in log.existing[topic]]
    async with _consumer(log.connection) as consumer:
        consumer.assign(partitions)
        consumer.seek_to_timestamp(first_ms)
        positions = {partition: await consumer.position(partition) for partition in partitions}
        beginnings = await consumer.beginning_offsets(partitions)
        await _read_to_the_end(consumer, f"counting {topic}", handle)
    trimmed = [partition for partition in partitions if 0 < beginnings[partition] == positions[partition]]
    return counts, max((first_stamps.get(partition, window.to_ms) for partition in trimmed), default=0)


def _consumer(connection: Mapping[str, Any]) -> Consumer:
    return Consumer(isolation_level="read_committed", auto_offset_reset="earliest", **connection)


async def _read_to_the_end(consumer: Consumer, what: str, handle: Handle) -> None:
    """Read all records that are in the assigned partitions now, and show the progress."""
    partitions = consumer.assignment()
    ends = await consumer.end_offsets(partitions)
    left = {partition: ends[partition] - await consumer.position(partition) for partition in partitions}
    total = sum(left.values())
    with progress_bar(what, total) as progress:
        while any(offsets > 0 for offsets in left.values()):
            for partition, records in (
                await consumer.getmany(timeout_ms=POLL_MS, max_records=RECORDS_AT_A_TIME)
            ).items():
                handle(partition, records)
            left = {
                partition: ends[partition] - await consumer.position(partition) for partition in partitions
            }
            progress(total - sum(max(0, offsets) for offsets in left.values()))
