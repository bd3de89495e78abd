"""Audits in the console: compared tiers, named gaps, and the message if nothing can be compared."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import pytest

from ottla.client.admin.records import LATEST
from ottla.client.auditing.comparison import AuditWindow
from ottla.client.auditing.counts import Amount, Bucket
from ottla.client.auditing.reports import Report, ReportSource, encode_report
from ottla.client.records import ConsumerRecord, TopicPartition
from ottla.console.pages import audits
from ottla.console.pages.audits import ReportsTaken, bucket_row, compared, remarks_on
from ottla.console.pages.messages.reading import MessagesRead
from ottla.protocol.errors import KafkaError
from tests.console.fakes import HOSTILE, Browser, FakeAdmin, partition, seen, topic

MINUTE_MS = 60_000
NOON_MS = 1_769_860_800_000
"""2026-01-31T12:00Z."""


def report(
    number: int, tier: str, count: int, start_ms: int = NOON_MS, name: str = "orders"
) -> ConsumerRecord:
    report = Report(
        ReportSource(tier, "client", tier), number, Bucket(name, start_ms), MINUTE_MS, Amount(count, count)
    )
    return ConsumerRecord("audit", 0, number, start_ms, None, encode_report(report))


def test_the_newest_buckets_come_first_and_what_is_missing_is_a_number() -> None:
    taken = ReportsTaken()
    given = [
        report(1, "producer", 10),
        report(2, "producer", 5, NOON_MS + MINUTE_MS),
        report(1, "consumer:billing", 7),
        report(1, "consumer:billing", 7),
        report(2, "consumer:billing", 5, NOON_MS + MINUTE_MS),
        report(1, "consumer:copies", 1, name="copies"),
        ConsumerRecord("audit", 0, 9, 0, None, b"{}"),
    ]
    assert [taken(record, None) for record in given] == [False] * len(given)
    assert (taken.reports, taken.tally.repeated, taken.unreadable) == (6, 1, 1)
    window = AuditWindow(0, NOON_MS + 10 * MINUTE_MS, NOON_MS + MINUTE_MS)
    rows, reasons = compared(taken.tally, "", window)
    shown = [bucket_row(row) for row in rows]
    assert [(row.bucket, row.state) for row in shown] == [
        ("2026-01-31T12:01-12:02Z", "open"), ("2026-01-31T12:00-12:01Z", "gap"),
    ]  # fmt: skip
    assert [(tier.tier, tier.records, tier.difference) for tier in shown[1].tiers] == [
        ("producer", 10, None), ("consumer:billing", 7, -3),
    ]  # fmt: skip
    remarks = remarks_on(rows, reasons, taken)
    assert remarks[0] == "1 of 2 buckets are open: they are compared after the grace"
    assert remarks[1].startswith("1 records are no reports. The first: partition 0, offset 9: ")
    assert remarks[2].startswith("not compared: copies: no reports of tier 'producer'")


class AuditedAdmin(FakeAdmin):
    """A cluster with an audit topic of three reports."""

    async def list_offsets(
        self, asked: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> dict[TopicPartition, int | KafkaError]:
        return {partition: 3 if when == LATEST else 0 for partition, when in asked.items()}


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> list[ConsumerRecord]:
    """Return the records of the audit topic, which a test fills."""
    given: list[ConsumerRecord] = []

    async def read(
        connection: object, begin: object, ends: object, tests: Sequence[Any], **_: object
    ) -> MessagesRead:
        assert (begin, ends) == ({TopicPartition("audit", 0): 0}, {TopicPartition("audit", 0): 3})
        reading = MessagesRead(trouble="" if given else "stopped after 8 s")
        for record in given:
            reading.take(record, tests)
        return reading

    monkeypatch.setattr(audits, "read", read)
    return given


def test_the_page_names_the_gap(records: list[ConsumerRecord]) -> None:
    browser = Browser(AuditedAdmin(topic("audit", partition()))).enter()
    hour_ms = int(time.time() * 1000) // 3_600_000 * 3_600_000 - 3_600_000
    assert "reading reports stopped after 8 s: ask for a shorter time" in seen(browser.read("/audits"))
    records += [report(1, "producer", 10, hour_ms), report(1, HOSTILE, 7, hour_ms)]
    page = browser.read("/audits?span=6h&topic=orders&grace=5m")
    assert "<script>alert" not in page
    text = seen(page)
    assert f"lacks 3 records in tier {HOSTILE} (of 10)" in text
    assert f"producer 10 {HOSTILE} 7 (-3) gap" in text
    assert "ottla audit --from 6h --grace 5m --topic orders" in text
    assert "2 reports, 1 buckets" in seen(browser.read("/audits?gaps=yes"))
    records[1:] = [report(1, "consumer", 10, hour_ms)]
    assert "complete 2 reports, 1 buckets" in seen(browser.read("/audits"))
    assert "2 reports, 0 buckets" in seen(browser.read("/audits?gaps=yes"))
    assert "not compared: other: no reports of tier 'producer'" in seen(browser.read("/audits?topic=other"))


def test_where_nothing_can_be_compared(records: list[ConsumerRecord]) -> None:
    browser = Browser(AuditedAdmin(topic("audit", partition()))).enter()
    nowhere = seen(browser.read("/audits?reports=" + quote(HOSTILE)))
    assert "clients with an audit_topic report to one" in nowhere
    records += [ConsumerRecord("audit", 0, 1, 0, None, b"{}")]
    assert "topic 'audit' holds no reports of this time" in seen(browser.read("/audits"))
    assert "'span' is one of 2h, 6h, 1d, 7d, 30d, not '1y'" in seen(browser.read("/audits?span=1y", 400))
    assert "'grace' is one of" in seen(browser.read("/audits?grace=0", 400))
