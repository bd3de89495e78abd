"""Tiers compared: differences by bucket, which of them count, and clients whose buckets differ in length."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.auditing.comparison import AuditWindow, NothingToCompare, Row, Tally, tiers_to_compare
from ottla.client.auditing.counts import (
    DAY_MS,
    Amount,
    Bucket,
    Counts,
    bucket_start,
    is_bucket_length,
)
from ottla.client.auditing.reports import Report, ReportSource

TEN_MINUTES = 600_000
MINUTE = 60_000
ALWAYS = AuditWindow(0, 1 << 62, 1 << 62)
TIERS = ["producer", "consumer"]
LENGTHS = [
    length_ms
    for length_ms in (1_000, 5_000, 7_200, MINUTE, 7 * MINUTE, 600_000, 900_000)
    if is_bucket_length(length_ms)
]

_NUMBERS = count()


class Reporter:
    """A client of a tier."""

    def __init__(self, tally: Tally, tier: str, bucket_ms: int = MINUTE) -> None:
        self.tally, self.bucket_ms = tally, bucket_ms
        self.source = ReportSource(tier, "c", f"{tier}-{next(_NUMBERS)}")
        self.sequence = 0

    def tells(self, count: int, at_ms: int = 0, topic: str = "orders") -> None:
        bucket = Bucket(topic, bucket_start(at_ms, self.bucket_ms))
        self.tally.add(Report(self.source, self.sequence, bucket, self.bucket_ms, Amount(count, 10 * count)))
        self.sequence += 1


def compared(tally: Tally, window: AuditWindow = ALWAYS, expired_ms: int = 0) -> list[Row]:
    return tally.rows("orders", TIERS, window, expired_ms)


def test_a_gap_and_a_surplus() -> None:
    tally = Tally()
    producer, consumer = Reporter(tally, "producer"), Reporter(tally, "consumer")
    for minute, (sent, read) in enumerate([(5, 5), (7, 4), (3, 4), (2, 0)]):
        producer.tells(sent, minute * MINUTE)
        if read:
            consumer.tells(read, minute * MINUTE)
    consumer.tells(1, 9 * MINUTE)
    rows = compared(tally)
    assert [row.state for row in rows] == ["ok", "gap", "surplus", "gap", "surplus"]
    assert [row.difference("consumer") for row in rows] == [0, -3, 1, -2, 1]
    (gap,) = rows[1].deviations()
    assert gap == (Bucket("orders", MINUTE), MINUTE, "consumer", -3, 7)


def test_buckets_are_judged_once_they_are_closed() -> None:
    tally = Tally()
    producer = Reporter(tally, "producer")
    for minute in range(3):
        producer.tells(1, minute * MINUTE)
    rows = compared(tally, AuditWindow(0, 1 << 62, 2 * MINUTE))
    assert [row.state for row in rows] == ["gap", "gap", "open"]
    assert not list(rows[2].deviations())


def test_the_window_takes_buckets_that_lie_partly_in_it() -> None:
    tally = Tally()
    producer = Reporter(tally, "producer")
    for minute in range(5):
        producer.tells(1, minute * MINUTE)
    rows = compared(tally, AuditWindow(MINUTE + 1, 3 * MINUTE + 1, 1 << 62))
    assert [row.bucket.start_ms // MINUTE for row in rows] == [1, 2, 3]


@given(
    st.lists(
        st.tuples(st.sampled_from(TIERS), st.sampled_from(LENGTHS), st.integers(0, 2 * DAY_MS)), max_size=30
    )
)
def test_clients_with_other_lengths_can_be_compared(counts: list[tuple[str, int, int]]) -> None:
    tally = Tally()
    for tier, length, at_ms in counts:
        Reporter(tally, tier, length).tells(1, at_ms)
    length = tally.bucket_ms("orders")
    assert is_bucket_length(length) or not counts
    rows = compared(tally)
    for row in rows:
        for tier in TIERS:
            inside = [
                at
                for tier_of_count, _, at in counts
                if tier_of_count == tier and bucket_start(at, length) == row.bucket.start_ms
            ]
            assert row.amounts[tier] == Amount(len(inside), 10 * len(inside))
    assert sum(row.amounts[tier].records for row in rows for tier in TIERS) == len(counts)


def test_the_log_is_a_tier_that_may_have_lost_its_beginning() -> None:
    tally = Tally()
    producer = Reporter(tally, "producer")
    for minute in range(3):
        producer.tells(2, minute * MINUTE)
    log = Counts(MINUTE)
    log.count("orders", [(MINUTE + 5, 1), (2 * MINUTE, 1), (2 * MINUTE, 1)])
    tally.add_log("orders", log)
    rows = tally.rows("orders", ["producer", "log"], ALWAYS, MINUTE + 5)
    assert [(row.amounts["log"].records, row.state) for row in rows] == [
        (0, "expired"),
        (1, "expired"),
        (2, "ok"),
    ]


def test_a_copy_that_nobody_reported_on_is_compared_with_the_log() -> None:
    tally = Tally()
    here, there = Counts(tally.bucket_ms("orders")), Counts(tally.bucket_ms("orders"))
    here.count("orders", [(5, 1), (6, 1), (TEN_MINUTES, 1)])
    there.count("orders", [(5, 1), (TEN_MINUTES, 1)])
    tally.add_log("orders", here)
    tally.add_log("orders", there, "log@west:9092")
    tiers = tiers_to_compare((), (), log=True, copies=["log@west:9092"])
    rows = tally.rows("orders", tiers, ALWAYS, 1)
    assert [(row.difference("log@west:9092"), row.state) for row in rows] == [(-1, "expired"), (0, "ok")]
    (judged, _) = tally.rows("orders", tiers, ALWAYS)
    assert judged.state == "gap"


def test_the_log_that_lost_its_beginning_hides_no_gap_of_consumers() -> None:
    tally = Tally()
    Reporter(tally, "producer").tells(2)
    Reporter(tally, "consumer").tells(1)
    (row,) = tally.rows("orders", ["producer", "log", "consumer"], ALWAYS, 1)
    assert row.state == "gap"
    assert [deviation.tier for deviation in row.deviations()] == ["consumer"]


@pytest.mark.parametrize(
    ("reporting", "named", "log", "expected"),
    [
        ({"producer", "b", "a"}, [], False, ["producer", "a", "b"]),
        ({"producer", "a"}, [], True, ["producer", "log", "a"]),
        ({"a"}, [], True, ["log", "a"]),
        ({"producer"}, [], True, ["producer", "log"]),
        (set(), ["x", "y", "x"], False, ["x", "y"]),
        ({"producer"}, ["x"], True, ["x", "log"]),
        ({"producer"}, ["log", "x"], True, ["log", "x"]),
    ],
)
def test_which_tiers_are_compared(
    reporting: set[str], named: list[str], log: bool, expected: list[str]
) -> None:
    assert tiers_to_compare(reporting, named, log=log) == expected


@pytest.mark.parametrize(
    ("reporting", "named", "expected"),
    [
        ({"producer", "a", "log@x:1"}, [], ["producer", "log", "log@x:1", "a"]),
        ({"a"}, ["a"], ["a", "log", "log@x:1"]),
        ({"a"}, ["log@x:1", "log"], ["log@x:1", "log"]),
    ],
)
def test_copies_come_behind_the_log(reporting: set[str], named: list[str], expected: list[str]) -> None:
    assert tiers_to_compare(reporting, named, log=True, copies=["log@x:1"]) == expected


@pytest.mark.parametrize(
    ("reporting", "named", "message"),
    [
        ({"producer"}, [], "there is no tier to compare 'producer' with"),
        ({"producer"}, ["a"], "there is no tier to compare 'a' with"),
        ({"a", "b"}, [], r"no reports of tier 'producer' \(there are a, b\)"),
    ],
)
def test_nothing_to_compare(reporting: set[str], named: list[str], message: str) -> None:
    with pytest.raises(NothingToCompare, match=message):
        tiers_to_compare(reporting, named, log=False)
