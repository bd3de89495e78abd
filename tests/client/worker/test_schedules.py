"""Retries, rates, limits of dead letters, and headers of letters and notes: pure values."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from ottla.client.records import ConsumerRecord
from ottla.client.worker.letters import (
    LAST_RESULTS,
    LEAST_RESULTS,
    DeadLetter,
    Letter,
    LetterLimits,
    letter_headers,
)
from ottla.client.worker.rates import SWEEP_AT_LEAST, Rate, StartRates
from ottla.client.worker.retries import Retry
from ottla.client.worker.retry_notes import note_headers, read_note, retry_topic


def a_record(topic: str = "orders", headers: Any = (), **fields: Any) -> ConsumerRecord:
    return ConsumerRecord(topic, 3, 42, 1_000, b"key", b"value", headers, **fields)


def test_delays_grow_up_to_the_most() -> None:
    retry = Retry(attempts=6, first=1, factor=4, most=60, jitter=0)
    assert [retry.delay_s(failures, 0.3) for failures in range(1, 7)] == [1, 4, 16, 60, 60, None]
    assert retry.longest_s == 60
    assert Retry(attempts=1).delay_s(1, 0.5) is None
    assert Retry(attempts=1).longest_s == 0
    assert Retry(attempts=10**6, factor=1e9, most=60, jitter=0).delay_s(10**5, 0) == 60


@given(failures=some.integers(1, 20), chance=some.floats(0, 1), jitter=some.floats(0, 1))
def test_chance_moves_a_delay_by_its_part(failures: int, chance: float, jitter: float) -> None:
    plain = Retry(attempts=100, jitter=0).delay_s(failures, 0)
    delay = Retry(attempts=100, jitter=jitter).delay_s(failures, chance)
    assert plain is not None
    assert delay is not None
    assert plain * (1 - jitter) - 1e-9 <= delay <= plain * (1 + jitter) + 1e-9


@pytest.mark.parametrize(
    ("kind", "wrong", "named"),
    [
        (Retry, {"attempts": 0}, "attempts"),
        (Retry, {"attempts": 1.5}, "attempts"),
        (Retry, {"first": -1}, "first"),
        (Retry, {"first": float("nan")}, "first"),
        (Retry, {"first": 61}, "first"),
        (Retry, {"factor": 0.5}, "factor"),
        (Retry, {"most": float("inf")}, "most"),
        (Retry, {"jitter": 2}, "jitter"),
        (Retry, {"jitter": "much"}, "jitter"),
        (Retry, {"most_held_s": -1}, "most_held_s"),
        (Rate, {"records": 0}, "records"),
        (Rate, {"records": 1, "per_s": 0}, "per_s"),
        (Rate, {"records": 1, "burst": 0}, "burst"),
        (Rate, {"records": 1, "burst": 1.5}, "burst"),
        (Rate, {"records": True}, "records"),
        (Rate, {"records": 1, "per_key": "yes"}, "per_key"),
        (DeadLetter, {"topic": ""}, "topic"),
        (DeadLetter, {"topic": b"letters"}, "topic"),
        (DeadLetter, {"topic": "letters", "most_ratio": 0}, "most_ratio"),
        (DeadLetter, {"topic": "letters", "most_ratio": "all"}, "most_ratio"),
        (DeadLetter, {"topic": "letters", "most_in_a_row": 0}, "most_in_a_row"),
        (DeadLetter, {"topic": "letters", "most_in_a_row": 0.5}, "most_in_a_row"),
    ],
)
def test_invalid_values_are_refused_by_name(kind: Any, wrong: dict[str, Any], named: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^{kind.__name__}: {named} is"):
        kind(**wrong)


@given(
    records=some.integers(1, 20),
    burst=some.none() | some.integers(1, 30),
    pauses=some.lists(some.floats(0, 0.5), max_size=60),
)
def test_no_window_has_more_starts_than_the_rate_allows(
    records: int, burst: int | None, pauses: list[float]
) -> None:
    """In any window of time t there are at most burst + t * rate starts."""
    rate = Rate(records, burst=burst)
    rates, now_s, starts = StartRates([rate]), 0.0, []
    for pause in pauses:
        now_s += pause
        now_s += rates.common_wait_s(now_s)
        assert rates.common_wait_s(now_s) == 0
        rates.take("key", now_s)
        starts.append(now_s)
    for first in range(len(starts)):
        for last in range(first, len(starts)):
            allowed = rate.most_at_once + (starts[last] - starts[first]) * records
            assert last - first + 1 <= allowed + 1e-3


def test_each_key_has_its_own_rate_and_idle_keys_are_dropped() -> None:
    rates = StartRates([Rate(1, burst=1, per_key=True)])
    for key in range(10 * SWEEP_AT_LEAST):
        now_s = key * 0.01
        assert rates.key_wait_s(key, now_s) == 0
        rates.take(key, now_s)
        assert rates.key_wait_s(key, now_s) == pytest.approx(1)
    assert len(rates._of_keys) <= SWEEP_AT_LEAST + 1
    assert rates.common_wait_s(0) == 0


def test_limits_of_letters() -> None:
    in_a_row = LetterLimits(None, 3)
    assert [in_a_row.excess() for _ in range(3)] == [None] * 3
    assert "3 records in a row" in (in_a_row.excess() or "")
    in_a_row.succeeded()
    assert in_a_row.excess() is None

    ratio = LetterLimits(0.1, None)
    for number in range(LEAST_RESULTS - 1):
        if number % 5 == 0:
            assert ratio.excess() is None, "too few results to judge"
        else:
            ratio.succeeded()
    assert "most_ratio" in (ratio.excess() or "")
    for _ in range(LAST_RESULTS):
        ratio.succeeded()
    assert ratio.excess() is None, "only the last results count"

    unlimited = LetterLimits(None, None)
    assert all(unlimited.excess() is None for _ in range(5_000))


def test_a_letter_tells_what_was_given_up_and_why() -> None:
    class Unprintable(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    record = a_record(headers=[("trace", b"\xff\x00"), ("none", None)])
    headers = letter_headers(record, "billing", KeyError("customer"), 5)
    assert dict(headers)["__dlq.errors.offset"] == b"42"
    letter = Letter.of(a_record("orders.dlq", headers))
    assert (letter.topic, letter.partition, letter.offset, letter.group_id) == ("orders", 3, 42, "billing")
    assert (letter.error_type, letter.error_text, letter.attempts) == ("KeyError", "'customer'", 5)
    assert letter.message == "KeyError: 'customer'"
    assert letter.headers == (("trace", b"\xff\x00"), ("none", None))
    again = letter_headers(a_record("orders.dlq", headers), "second", ValueError(), 1)
    assert len(again) == len(headers), "a letter of a letter has the headers once"
    assert Letter.of(
        a_record("x", letter_headers(record, "g", ValueError("é" * 9_000), 1))
    ).error_text.endswith("(9000 characters)")
    assert (
        "RuntimeError" in Letter.of(a_record("x", letter_headers(record, "g", Unprintable(), 1))).error_text
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [("__dlq.errors.topic", None), ("__dlq.errors.offset", b"-1"), ("__dlq.errors.partition", b"9" * 99)],
)
def test_a_record_that_is_no_letter_is_refused(name: str, value: bytes | None) -> None:
    headers = dict(letter_headers(a_record(), "billing", ValueError(), 1)) | {name: value}
    with pytest.raises(ValueError, match=re.escape(name)):
        Letter.of(a_record(headers=list(headers.items())))


def test_notes_of_retry_topics() -> None:
    assert retry_topic("orders") == retry_topic("orders.retry") == "orders.retry"
    headers = note_headers(a_record(headers=[("a", b"b")]), 5_000, 2)
    note = read_note(a_record("orders.retry", headers))
    assert note == (5_000, 2, "orders/3/42")
    second = note_headers(a_record("orders.retry", headers), 9_000, 3)
    assert read_note(a_record("orders.retry", second)) == (9_000, 3, "orders/3/42")
    assert len(second) == len(headers)
    assert read_note(a_record("orders", headers)) is None, "producers of the topic itself write no notes"


@pytest.mark.parametrize(
    ("topic", "origin", "told"),
    [
        ("orders.retry", b"orders/1/7", ("orders", 1, 7)),
        ("orders.retry", b"bills/1/7", ("orders.retry", 3, 42)),
        ("orders.retry", b"orders/1/-7", ("orders.retry", 3, 42)),
        ("orders.retry", b"orders/1/7/9", ("orders.retry", 3, 42)),
        ("orders", b"orders/1/7", ("orders", 3, 42)),
    ],
)
def test_a_letter_tells_the_place_before_retries(
    topic: str, origin: bytes, told: tuple[str, int, int]
) -> None:
    """`ottla dlq replay` then sends it back to its topic, and not to the retry topic."""
    headers = [*note_headers(a_record(), 5_000, 2)[:-1], ("ottla.retry.origin", origin)]
    letter = Letter.of(a_record("x", letter_headers(a_record(topic, headers), "billing", KeyError(), 3)))
    assert (letter.topic, letter.partition, letter.offset) == told


@given(
    some.dictionaries(some.sampled_from(["at", "attempt", "origin"]), some.none() | some.binary(max_size=30))
)
def test_a_hostile_note_counts_as_none(told: dict[str, bytes | None]) -> None:
    note = read_note(
        a_record("orders.retry", [(f"ottla.retry.{name}", value) for name, value in told.items()])
    )
    assert note is None or (note.at_ms < 10**18 and 0 < note.failures <= 10**6)
