"""Counting and reporting without a cluster: no count is lost or doubled, and invalid data is no report."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.auditing.comparison import AuditWindow, Tally
from ottla.client.auditing.counts import Amount, Bucket, Counts, Stamped, bucket_start, is_bucket_length
from ottla.client.auditing.ledger import Ledger
from ottla.client.auditing.reports import (
    NoReport,
    Report,
    ReportSource,
    encode_report,
    parse_report,
    printable,
)
from ottla.client.auditing.settings import AuditSettings, tier_of_readers
from ottla.client.consumer import Consumer
from ottla.client.consuming.handed_out import HandedOut, OffsetRanges
from ottla.client.producer import Producer
from ottla.client.records import ConsumerRecord, TopicPartition

MINUTE = 60_000
LENGTHS = [
    length for length in (1_000, 7_200, MINUTE, 600_000, 3_600_000, 86_400_000) if is_bucket_length(length)
]
TEXTS = st.text(min_size=1, max_size=20).filter(str.isprintable)
TOPICS = st.from_regex(r"[A-Za-z0-9._-]{1,20}", fullmatch=True).filter(lambda name: name not in (".", ".."))
RECORDS = st.tuples(st.integers(-5, 10_000_000), st.integers(0, 1_000))
REPORTS = st.builds(
    lambda tier, client, instance, sequence, topic, length, at, count, size: Report(
        ReportSource(tier, client, instance), sequence, Bucket(topic, at * length), length, Amount(count, size)
    ),
    TEXTS, st.text(max_size=20).map(printable), TEXTS, st.integers(0, 1 << 40), TOPICS,
    st.sampled_from(LENGTHS), st.integers(0, 1 << 30), st.integers(1, 1 << 40), st.integers(0, 1 << 50),
)  # fmt: skip
HERE = TopicPartition("t", 0)
ALWAYS = AuditWindow(0, 1 << 62, 1 << 62)


def amounts(counts: Counts) -> dict[Bucket, Amount]:
    return {bucket: counts.take(bucket) for bucket in list(counts)}


# ------------------------------------------------------------ counts


@given(st.lists(st.tuples(st.sampled_from("ab"), st.lists(RECORDS))), st.sampled_from(LENGTHS))
def test_counts_are_those_of_one_record_after_the_other(
    batches: list[tuple[str, list[Stamped]]], length: int
) -> None:
    together, merged = Counts(length), Counts(length)
    expected: Counter[Bucket] = Counter()
    sizes: Counter[Bucket] = Counter()
    for topic, records in batches:
        together.count(topic, records)
        part = Counts(length)
        part.count(topic, records)
        merged.merge(part)
        for stamp, size in records:
            bucket = Bucket(topic, max(0, stamp // length * length))
            expected[bucket] += 1
            sizes[bucket] += size
    assert together.records == merged.records == expected.total()
    found = amounts(together)
    assert found == amounts(merged) == {key: Amount(expected[key], sizes[key]) for key in expected}
    assert not together


def test_lengths_of_buckets_divide_a_day() -> None:
    assert all(is_bucket_length(length_ms) for length_ms in (1_000, 60_000, 600_000, 3_600_000, 86_400_000))
    assert not any(
        is_bucket_length(length_ms)
        for length_ms in (0, -1_000, 1, 999, 7_001, 420_001, 86_400_001, 172_800_000)
    )
    assert bucket_start(1_199_999, 600_000) == 600_000


# ------------------------------------------------------------ reports


@given(REPORTS)
def test_a_report_is_read_as_it_was_written(report: Report) -> None:
    assert parse_report(encode_report(report)) == report


GOOD: dict[str, Any] = {
    "version": 1, "tier": "producer", "client": "c", "instance": "i", "sequence": 0, "topic": "orders",
    "bucket_start_ms": 600_000, "bucket_ms": 600_000, "count": 3, "bytes": 0,
}  # fmt: skip


def test_the_form_of_a_report_stays() -> None:
    report = Report(ReportSource("producer", "c", "i"), 0, Bucket("orders", 600_000), 600_000, Amount(3, 0))
    assert json.loads(encode_report(report)) == GOOD


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "version 2, where 1 is known"),
        ({"version": "1"}, "version is a whole number from 1 on, not '1'"),
        ({"count": 0}, "count is a whole number from 1 on, not 0"),
        ({"count": True}, "count is a whole number from 1 on, not True"),
        ({"count": 1.5}, "count is a whole number"),
        ({"count": 1 << 63}, "count is a whole number"),
        ({"bytes": -1}, "bytes is a whole number from 0 on, not -1"),
        ({"sequence": None}, "sequence is a whole number from 0 on, not None"),
        ({"bucket_ms": 7_001}, "bucket_ms 7001 does not divide a day"),
        ({"bucket_start_ms": 1}, "no bucket of 600000 ms begins at 1"),
        ({"topic": ""}, "topic is the name of a topic, not ''"),
        ({"topic": "a/b"}, "topic is the name of a topic, not 'a/b'"),
        ({"topic": 7}, "topic is the name of a topic, not 7"),
        ({"tier": ["x"]}, "tier is a printable text"),
        ({"tier": "\x1b[2J"}, "tier is a printable text"),
        ({"tier": "\ud800"}, "tier is a printable text"),
        ({"instance": ""}, "instance is a printable text of 1 to 4096 characters, not ''"),
        ({"client": "x" * 5_000}, r"client is a printable text of 0 to 4096 characters, not 'x+\.\.\."),
        ({"more": 1}, "unknown field 'more'"),
    ],
)
def test_nonsense_is_refused_by_its_field(change: dict[str, Any], message: str) -> None:
    with pytest.raises(NoReport, match=message):
        parse_report(json.dumps(GOOD | change).encode())


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "no value"),
        (b"", "no JSON"),
        (b"\xff", "no JSON"),
        (b"[" * 60_000, "no JSON"),
        (b"9" * 60_000, "no JSON"),
        (b"[]", "a list where an object is expected"),
        (b" " * 70_000, "70000 bytes, where a report has at most 65536"),
    ],
)
def test_what_is_no_object_is_refused(value: bytes | None, message: str) -> None:
    with pytest.raises(NoReport, match=message):
        parse_report(value)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_report_or_none(value: bytes) -> None:
    with pytest.raises(NoReport):
        parse_report(value)


@pytest.mark.parametrize("name", GOOD)
def test_every_field_is_needed(name: str) -> None:
    with pytest.raises(NoReport, match=name):
        parse_report(json.dumps({key: value for key, value in GOOD.items() if key != name}).encode())


# ------------------------------------------------------------ the ledger


@given(st.data())
def test_whatever_fails_each_record_is_reported_once(data: st.DataObject) -> None:
    """Reports may fail although the topic has them, and may come twice.

    The final total is the counted records without those of aborted transactions.
    """
    ledger, tally = Ledger(ReportSource("producer", "c", "i"), MINUTE), Tally()
    expected: Counter[Bucket] = Counter()
    pending: Counter[Bucket] = Counter()
    for _ in range(data.draw(st.integers(0, 15))):
        step = data.draw(st.sampled_from(["count", "write", "end", "report"]))
        if step in ("count", "write"):
            records = data.draw(st.lists(st.tuples(st.integers(-5, 3 * MINUTE), st.just(1)), max_size=4))
            ledger.count("t", records, transactional=step == "write")
            for stamp, _ in records:
                (expected if step == "count" else pending)[Bucket("t", max(0, stamp // MINUTE * MINUTE))] += 1
        elif step == "end":
            committed = data.draw(st.booleans())
            ledger.transaction_ended(committed=committed)
            if committed:
                expected += pending
            pending.clear()
        else:
            report_all(ledger, tally, data)
    assert ledger.undecided == pending.total()
    while ledger.unreported:
        report_all(ledger, tally, data)
    found = {row.bucket: row.amounts["producer"].records for row in tally.rows("t", ["producer"], ALWAYS)}
    assert found == expected


def report_all(ledger: Ledger, tally: Tally, data: st.DataObject) -> None:
    for report in ledger.cut():
        arrives = data.draw(st.sampled_from(["lost", "unheard", "once", "twice"]))
        for _ in range({"lost": 0, "unheard": 1, "once": 1, "twice": 2}[arrives]):
            tally.add(parse_report(encode_report(report)))
        if arrives in ("once", "twice"):
            ledger.delivered(report)


def test_a_bucket_has_one_report_under_way() -> None:
    ledger = Ledger(ReportSource("producer", "c", "i"), MINUTE)
    ledger.count("t", [(0, 1)])
    (first,) = ledger.cut()
    ledger.count("t", [(0, 1), (MINUTE, 1)])
    again, other = ledger.cut()
    assert again is first
    assert (other.sequence, other.bucket.start_ms) == (1, MINUTE)
    ledger.delivered(first)
    assert [report.sequence for report in ledger.cut()] == [1, 2]
    assert ledger.unreported == 2


# ------------------------------------------------------------ records handed out


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 10))))
def test_ranges_are_a_set(ranges: list[tuple[int, int]]) -> None:
    found, model = OffsetRanges(), set[int]()
    for start, length in ranges:
        found.add(start, start + length)
        model.update(range(start, start + length))
    assert [offset for offset in range(60) if offset in found] == sorted(model)
    assert len(found) == sum(1 for offset in model if offset - 1 not in model)
    assert all(found.reaches_beyond(offset) == (max(model, default=-1) >= offset) for offset in range(60))


def record(offset: int) -> ConsumerRecord:
    return ConsumerRecord("t", 0, offset, offset, None, b"v")


def readable(start: int, end: int) -> list[ConsumerRecord]:
    """Return a log with gaps in place of markers."""
    return [record(offset) for offset in range(start, end) if offset % 3]


@given(st.data())
def test_each_offset_counts_once_and_only_if_it_was_given(data: st.DataObject) -> None:
    """The program reads many records at a time or one by one, seeks, and leaves some of the taken records unread."""
    counted: list[int] = []
    handed_out = HandedOut(lambda _, records: counted.extend(stamp for stamp, _ in records))
    given_to_program: set[int] = set()
    unread: list[ConsumerRecord] = []
    position = 0
    for _ in range(data.draw(st.integers(0, 20))):
        step = data.draw(st.sampled_from(["many", "one", "seek", "interval"]))
        first = {HERE: unread[0].offset} if unread else {}
        if step == "interval":
            handed_out.settle(first)
        elif step == "seek":
            handed_out.settle(first)
            handed_out.drop([HERE])
            unread, position = [], data.draw(st.integers(0, 60))
        elif step == "many" or not unread:
            if unread:
                continue  # a program that reads one by one finishes those first
            handed_out.settle({})
            end = position + data.draw(st.integers(0, 12))
            records = readable(position, end)
            handed_out.taken(HERE, position, end, records)
            position = end
            if step == "many":
                given_to_program.update(record.offset for record in records)
            else:
                unread = records
        if step == "one" and unread:
            given_to_program.add(unread.pop(0).offset)
    handed_out.settle({HERE: unread[0].offset} if unread else {})
    assert sorted(counted) == sorted(given_to_program)


def test_what_is_taken_away_unread_is_not_counted() -> None:
    counted: list[int] = []
    handed_out = HandedOut(lambda _, records: counted.extend(stamp for stamp, _ in records))
    handed_out.taken(HERE, 0, 10, [record(offset) for offset in range(10)])
    handed_out.settle({HERE: 4})
    handed_out.keep([])
    handed_out.settle({})
    assert counted == [0, 1, 2, 3]
    handed_out.taken(HERE, 4, 6, [record(4), record(5)])  # it comes back
    handed_out.settle({})
    assert counted == [0, 1, 2, 3, 4, 5]


def test_long_reading_takes_one_range() -> None:
    handed_out = HandedOut(lambda _, records: None)
    for start in range(0, 3_000, 3):  # and here each take ends in a marker
        handed_out.taken(HERE, start, start + 3, readable(start, start + 2))
        handed_out.settle({})
    assert len(handed_out._counted[HERE]) == 1


# ------------------------------------------------------------ options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"audit_topic": "a b"}, "audit_topic is the name of a topic .* not 'a b'"),
        ({"audit_topic": ""}, "audit_topic is the name of a topic"),
        (
            {"audit_tier": ""},
            "audit_tier is a printable text of 1 to 300 characters other than 'log' and 'log@...', not ''",
        ),
        ({"audit_tier": "log"}, "other than 'log'"),
        ({"audit_tier": "a\nb"}, "audit_tier is a printable text"),
        ({"audit_bucket_ms": 7_001}, "audit_bucket_ms is a day divided by a whole number, .* not 7001"),
        ({"audit_bucket_ms": 500}, "at least a second"),
        ({"audit_interval_ms": 0}, "audit_interval_ms is 1 to 2147483647, not 0"),
    ],
)
@pytest.mark.parametrize("make", [Producer, Consumer])
def test_options_that_make_no_sense(make: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**({"audit_topic": "audit"} | options))


def test_each_group_is_a_tier_of_its_own() -> None:
    assert tier_of_readers(None, None) == "consumer"
    assert tier_of_readers(None, "billing") == "consumer:billing"
    assert tier_of_readers("shipped", "billing") == "shipped"
    assert AuditSettings("audit", tier_of_readers(None, "x" * 250)).interval_ms == 30_000
