"""The area "Audits": record counts of producers and consumers in each tier, compared by topic and time bucket.

A gap is a bucket in which a tier has fewer records than the reference tier.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ...client.admin.records import LATEST
from ...client.auditing.comparison import AuditWindow, NothingToCompare, Row, Tally, tiers_to_compare
from ...client.auditing.counts import DAY_MS, bucket_start
from ...client.auditing.reports import NoReport, parse_report
from ...client.auditing.settings import AUDIT_TOPIC
from ...client.auditing.verdicts import COMPLETE, bucket_text, has_gaps, surplus, verdict
from ...client.records import ConsumerRecord, TopicPartition
from ...protocol.errors import KafkaError
from ..area import Area, BadQuestion, NotThere, Paged, Rendered, View, Visit
from ..commands import command, option
from .messages.reading import read

SPANS: Final = {"2h": 7_200_000, "6h": 21_600_000, "1d": DAY_MS, "7d": 7 * DAY_MS, "30d": 30 * DAY_MS}
GRACES: Final = {"2m": 120_000, "5m": 300_000, "15m": 900_000, "1h": 3_600_000}


@dataclass(frozen=True, slots=True)
class TiersAsked:
    """The comparison of tiers that a page's query asks for.

    An empty `topic` stands for all topics. `span` and `grace` are keys of SPANS and GRACES: how far back buckets are
    compared, and how long they stay open.
    """

    audit_topic: str
    topic: str
    span: str
    grace: str
    only_gaps: bool

    def window(self, now_ms: int) -> AuditWindow:
        """Return the time window whose buckets are compared at `now_ms`, in milliseconds since 1970."""
        return AuditWindow(now_ms - SPANS[self.span], now_ms, now_ms - GRACES[self.grace])

    def command(self) -> str:
        """Return the `ottla audit` command that makes the same comparison."""
        words = ["audit", "--from", self.span, "--grace", self.grace]
        words += option("--topic", self.topic) if self.topic else []
        words += option("--audit-topic", self.audit_topic) if self.audit_topic != AUDIT_TOPIC else []
        return command(*words)


@dataclass(frozen=True, slots=True)
class TierCount:
    """The number of records that a tier counted in a time bucket.

    `difference` is the difference from the reference tier, None for that tier itself.
    """

    tier: str
    records: int
    difference: int | None


@dataclass(frozen=True, slots=True)
class BucketRow:
    """A time bucket of a topic as a table row, with each tier's count; the reference tier comes first."""

    topic: str
    bucket: str
    tiers: Sequence[TierCount]
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditsPage:
    """The data that the template of the page "Audits" shows. If `trouble` has a reason, no tiers were compared."""

    asked: TiersAsked
    spans: Sequence[str]
    graces: Sequence[str]
    trouble: str = ""
    verdict: str = ""
    is_complete: bool = False
    has_gaps: bool = False
    surplus: str = ""
    remarks: Sequence[str] = ()
    reports: int = 0
    paged: Paged[Row] | None = None
    rows: Sequence[BucketRow] = ()


class ReportsTaken:
    """A record filter that adds up the audit reports in records, and passes no record."""

    def __init__(self) -> None:
        self.tally = Tally()
        self.reports = 0
        self.unreadable = 0
        self.first_unreadable = ""

    def __call__(self, record: ConsumerRecord, _: object) -> bool:
        try:
            self.tally.add(parse_report(record.value))
        except NoReport as error:
            self.unreadable += 1
            where = f"partition {record.partition}, offset {record.offset}"
            self.first_unreadable = self.first_unreadable or f"{where}: {error}"
        else:
            self.reports += 1
        return False


def asked_of(visit: Visit) -> TiersAsked:
    """Return the comparison of tiers that the page's query asks for. Raises BadQuestion."""
    span, grace = visit.text("span", "1d"), visit.text("grace", "2m")
    for name, value, allowed in (("span", span, SPANS), ("grace", grace, GRACES)):
        if value not in allowed:
            raise BadQuestion(f"{name!r} is one of {', '.join(allowed)}, not {value[:40]!r}")
    audit_topic = visit.text("reports") or AUDIT_TOPIC
    return TiersAsked(audit_topic, visit.text("topic"), span, grace, visit.text("gaps") == "yes")


def compared(tally: Tally, topic: str, window: AuditWindow) -> tuple[list[Row], dict[str, str]]:
    """Return the compared buckets of a topic, or of all topics if `topic` is empty, the newest first.

    The second value maps topics that were not compared to the reason.
    """
    rows: list[Row] = []
    reasons = {}
    for name in [topic] if topic else tally.topics():
        try:
            tiers = tiers_to_compare(tally.tiers([name]), [], log=False)
        except NothingToCompare as error:
            reasons[name] = str(error)
            continue
        rows += tally.rows(name, tiers, window)
    rows.sort(key=lambda row: (-row.bucket.start_ms, row.bucket.topic))
    return rows, reasons


def bucket_row(row: Row) -> BucketRow:
    """Return the table row of a compared time bucket."""
    tiers = [
        TierCount(tier, amount.records, None if tier == row.reference else row.difference(tier))
        for tier, amount in row.amounts.items()
    ]
    return BucketRow(row.bucket.topic, bucket_text(row.bucket, row.bucket_ms), tiers, row.state)


def remarks_on(rows: Sequence[Row], reasons: Mapping[str, str], taken: ReportsTaken) -> list[str]:
    """Return sentences about open buckets, unreadable audit reports and topics that were not compared."""
    found = []
    if count := sum(not row.closed for row in rows):
        found.append(f"{count:,} of {len(rows):,} buckets are open: they are compared after the grace")
    if taken.unreadable:
        found.append(f"{taken.unreadable:,} records are no reports. The first: {taken.first_unreadable}")
    return found + [f"not compared: {topic}: {why}" for topic, why in reasons.items()]


async def show(visit: Visit) -> Rendered:
    """Return the page "Audits", after reading the audit reports of the requested time."""
    asked, now_ms = asked_of(visit), int(time.time() * 1000)
    window, taken = asked.window(now_ms), ReportsTaken()
    trouble = await _read_reports(visit, asked.audit_topic, window, taken)
    rows, reasons = compared(taken.tally, asked.topic, window)
    if not trouble and not taken.tally.topics():
        trouble = f"topic {asked.audit_topic!r} holds no reports of this time"
    if trouble:
        return _rendered(AuditsPage(asked=asked, spans=list(SPANS), graces=list(GRACES), trouble=trouble))
    shown = [row for row in rows if row.state == "gap"] if asked.only_gaps else rows
    paged, judgement = visit.paged(shown), verdict(rows)
    return _rendered(
        AuditsPage(
            asked=asked,
            spans=list(SPANS),
            graces=list(GRACES),
            verdict=judgement,
            is_complete=judgement == COMPLETE,
            has_gaps=has_gaps(rows),
            surplus=surplus(rows),
            remarks=remarks_on(rows, reasons, taken),
            reports=taken.reports,
            paged=paged,
            rows=[bucket_row(row) for row in paged.rows],
        )
    )


def _rendered(page: AuditsPage) -> Rendered:
    return Rendered("Audits", "audits.html", page)


async def _read_reports(visit: Visit, name: str, window: AuditWindow, taken: ReportsTaken) -> str:
    """Read the audit reports of a time window from topic `name` into `taken`.

    Returns the reason if not all could be read, else an empty text.
    """
    try:
        topic = await visit.topic(name)
    except NotThere as error:
        return f"{error}: clients with an audit_topic report to one"
    places = [TopicPartition(name, index) for index in topic.partitions]
    # A report is not older than its bucket, and no bucket begins on another day than it ends.
    begin_ms = bucket_start(window.from_ms, DAY_MS)
    firsts = await visit.admin.list_offsets(dict.fromkeys(places, begin_ms), read_committed=True)
    ends = await visit.admin.list_offsets(dict.fromkeys(places, LATEST), read_committed=True)
    begin: dict[TopicPartition, int] = {}
    upper: dict[TopicPartition, int] = {}
    for partition in places:
        first, end = firsts[partition], ends[partition]
        if isinstance(first, KafkaError) or isinstance(end, KafkaError):
            refusal = first if isinstance(first, KafkaError) else end
            return f"the reports of {name}-{partition.partition} cannot be read: {refusal}"
        if 0 <= first < end:
            begin[partition], upper[partition] = first, end
    reading = await read(visit.connection, begin, upper, [taken], count=None, is_committed_only=True)
    if reading.trouble:
        return f"reading reports {reading.trouble}: ask for a shorter time, or use the command"
    return ""


AREA = Area(name="audits", title="Audits", place=65, parts=(View(path="/audits", show=show),))
