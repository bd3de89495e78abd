"""Values that users write: names, patterns, partitions, times, sizes."""

from __future__ import annotations

import time

import pytest

from ottla.cli.arguments.selection import (
    broker_ids,
    bytes_of,
    count_of,
    iso_time,
    milliseconds_of,
    named_partitions,
    numbers_in,
    partition_offsets,
    select,
    timestamp_ms,
    topic_partitions,
)
from ottla.cli.failures import CommandFailed, UsageError

TOPICS = ["orders", "orders-dlq", "payments"]


def test_counts_take_the_units_of_sizes() -> None:
    assert [count_of(text, "-n") for text in ("1", "2k", "1.5M", "3G")] == [1, 2000, 1_500_000, 3 * 10**9]
    for text in ("0", "-1", "1.5", "2kB", "", "9" * 400, "k"):
        with pytest.raises(UsageError, match="-n takes a number from 1 on, such as 2000, 2k or 1M"):
            count_of(text, "-n")


def test_names_are_all_named_or_matched() -> None:
    assert select(TOPICS, [], "topic", regex=False) == TOPICS
    assert select(TOPICS, ["payments", "orders", "orders"], "topic", regex=False) == ["payments", "orders"]
    assert select(TOPICS, ["orders.*"], "topic", regex=True) == ["orders", "orders-dlq"]


@pytest.mark.parametrize(
    ("asked", "regex", "message"),
    [
        (["order"], False, "there is no topic 'order'; did you mean 'orders'?"),
        (["order"], True, "no topic matches order"),
    ],
)
def test_names_that_are_not_there(asked: list[str], regex: bool, message: str) -> None:
    with pytest.raises(CommandFailed, match=message.replace("?", r"\?")):
        select(TOPICS, asked, "topic", regex=regex)


def test_what_is_no_regular_expression() -> None:
    with pytest.raises(UsageError, match="is no regular expression"):
        select(TOPICS, ["("], "topic", regex=True)


def test_partitions() -> None:
    assert topic_partitions("a.b_c-d") == ("a.b_c-d", None)
    assert topic_partitions("t:0,2-4,2") == ("t", [0, 2, 3, 4])
    assert named_partitions(["t", "t:1"], {"t": [0, 1]}) == [("t", 0), ("t", 1)]
    with pytest.raises(CommandFailed, match="t has partitions 0 to 1, not 2"):
        named_partitions(["t:2"], {"t": [0, 1]})
    with pytest.raises(CommandFailed, match="there is no topic 'u'"):
        named_partitions(["u"], {"t": [0, 1]})


@pytest.mark.parametrize("text", ["t:", "t:x", "t/u", "", "t:4-2", "t:0-999999999", "t:1,,2", "t:-1"])
def test_partitions_that_make_no_sense(text: str) -> None:
    with pytest.raises(UsageError):
        topic_partitions(text)


def test_ids_of_brokers() -> None:
    assert broker_ids("3,1,2", "--replicas") == [3, 1, 2]
    for wrong in ("1,1", "", "1,x", "-1"):
        with pytest.raises(UsageError, match="--replicas"):
            broker_ids(wrong, "--replicas")


def test_times() -> None:
    assert timestamp_ms("17", 0) == 17
    assert timestamp_ms("2h", 7_200_001) == 1
    assert timestamp_ms("1970-01-01T00:00:01Z", 0) == 1000
    assert timestamp_ms("1970-01-01T01:00:00+01:00", 0) == 0
    for before in ("1969-12-31T23:59:59.999Z", "1969-12-31T23:59:59.997Z", "30000d"):
        assert timestamp_ms(before, 1_700_000_000_000) == 0, "-1 is the end: a trim would delete all there is"
    for wrong in ("", "soon", "2y", "2026-13-01", "-5", str(2**63), "9" * 5000, "9" * 5000 + "d"):
        with pytest.raises(UsageError):
            timestamp_ms(wrong, 0)
    assert iso_time(1_700_000_000_123) == "2023-11-14T22:13:20.123Z"
    assert iso_time(-1) == ""
    assert iso_time(2**62) == str(2**62)


def test_a_time_without_a_zone_is_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as far_away:
        far_away.setenv("TZ", "XXX-14")  # UTC + 14 h
        time.tzset()
        found = timestamp_ms("2026-01-31T12:00:00.001", 0)
    time.tzset()
    assert found == timestamp_ms("2026-01-31T12:00:00.001Z", 0) == 1_769_860_800_001


def test_offsets_by_partition() -> None:
    existing = {"a": range(4), "b": range(1)}
    assert partition_offsets(["a", "b:0"], existing) is None
    assert partition_offsets(["a:0,2-3=7", "b=9", "a:1=0"], existing) == {
        ("a", 0): 7, ("a", 2): 7, ("a", 3): 7, ("b", 0): 9, ("a", 1): 0,
    }  # fmt: skip
    for wrong in (["a:0=7", "b"], ["a=x"], ["a="], ["a=-1"], ["a=1=2"], ["a:0=7", "a=8"]):
        with pytest.raises(UsageError):
            partition_offsets(wrong, existing)
    with pytest.raises(CommandFailed, match="a has partitions 0 to 3, not 4"):
        partition_offsets(["a:4=1"], existing)


def test_sizes() -> None:
    assert [bytes_of(text, "-s") for text in ("7", "1kB", "1.5MB", "64KiB", "50MB/s", "2 GiB")] == [
        7, 1000, 1_500_000, 65536, 50_000_000, 2**31,
    ]  # fmt: skip
    for wrong in ("", "-1", "fast", "1TBB"):
        with pytest.raises(UsageError, match="-s takes"):
            bytes_of(wrong, "-s")


def test_ranges_of_numbers() -> None:
    assert numbers_in("0,2-4", "x") == [0, 2, 3, 4]


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("90", 90), ("250ms", 250), ("90s", 90_000), ("15m", 900_000), ("2h", 7_200_000)],
)
def test_durations(text: str, milliseconds: int) -> None:
    assert milliseconds_of(text, "--max-timeout") == milliseconds


@pytest.mark.parametrize("text", ["", "-1m", "1 m", "m", "1.5h", "1w"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(UsageError, match="--max-timeout takes a time such as 90s, 15m or 2h"):
        milliseconds_of(text, "--max-timeout")
