"""Rates and buckets compared with brute force, and the promise that throttled clients converge on their limit."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.dataplane.quotas import (
    ClientQuotas,
    MeasuredRate,
    MutationQuota,
    QuotaLimits,
    QuotaWindows,
    RateQuota,
)

WINDOWS = QuotaWindows(samples=4, sample_ms=1000)
STEPS = st.lists(st.tuples(st.integers(0, 2500), st.integers(1, 1000)), min_size=1, max_size=60)


class SlowRate:
    """A rate that is computed from all past events."""

    def __init__(self) -> None:
        self.events: list[tuple[int, int]] = []

    def samples(self, now_ms: int) -> list[list[tuple[int, int]]]:
        found: list[list[tuple[int, int]]] = []
        for event in self.events:
            if not found or event[0] - found[-1][0][0] >= WINDOWS.sample_ms:
                found.append([])
            found[-1].append(event)
        keep_ms = WINDOWS.samples * WINDOWS.sample_ms
        # A sample that is too old when something happens is gone for ever.
        times = [event[0] for event in self.events] + [now_ms]
        return [window for window in found if not any(time >= window[-1][0] + keep_ms for time in times)]

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        kept = self.samples(now_ms)
        elapsed = now_ms - kept[0][0][0] if kept else 0
        over_ms = max(elapsed + max(0, WINDOWS.samples - 1 - elapsed // WINDOWS.sample_ms) * 1000, 1)
        rate = sum(amount for window in kept for _, amount in window) * 1000 / over_ms
        return round((rate - limit) / limit * over_ms) if rate > limit else 0


@given(STEPS, st.sampled_from([1.0, 50.0, 333.3, 5000.0]))
def test_a_rate_is_what_looking_at_everything_says(steps: list[tuple[int, int]], limit: float) -> None:
    rate, slow, now = MeasuredRate(WINDOWS), SlowRate(), 0
    for pause_ms, amount in steps:
        now += pause_ms
        assert rate.throttle_ms(limit, now) == slow.throttle_ms(limit, now)
        rate.record(amount, now)
        slow.events.append((now, amount))
        assert rate.throttle_ms(limit, now) == slow.throttle_ms(limit, now)


@settings(max_examples=25)
@given(st.integers(100, 500), st.integers(500, 2000))
def test_who_waits_as_long_as_told_converges_on_the_limit(amount: int, limit: int) -> None:
    quota = RateQuota(QuotaWindows(), QuotaLimits({(("client-id", "c"),): {"k": float(limit)}}, "k"))
    now, sent = 0.0, 0
    while now < 200_000:
        sent += amount
        now += 1 + quota.charge("u", "c", amount, now)
    assert sent == pytest.approx(min(limit, 1000 * amount) * now / 1000, rel=0.15)


@given(st.integers(1, 20), st.floats(0.5, 20))
def test_partitions_converge_on_their_limit_after_a_burst(partitions: int, limit: float) -> None:
    quota = MutationQuota(WINDOWS, QuotaLimits({(("user", None),): {"k": limit}}, "k"))
    now, made = 0.0, 0
    for _ in range(300):
        wait = quota.charge("u", "c", partitions, now, strict=True)
        made += 0 if wait else partitions
        now += wait
    burst = limit * WINDOWS.samples
    assert made <= burst + limit * now / 1000 + 2 * partitions
    assert made >= burst + limit * now / 1000 - 2 * partitions - limit


def test_a_refused_change_of_partitions_is_not_charged() -> None:
    quota = MutationQuota(WINDOWS, QuotaLimits({(("user", "u"),): {"k": 1.0}}, "k"))
    assert quota.charge("u", "c", 6, 0, strict=True) == 0
    owed = quota.charge("u", "c", 100, 0, strict=True)
    assert owed == 2000
    assert quota.charge("u", "c", 1, owed, strict=True) == 0
    assert quota.charge("u", "c", 5, owed, strict=False) == 6000


def test_an_answer_larger_than_the_window_is_given_to_who_had_nothing() -> None:
    quota = RateQuota(WINDOWS, QuotaLimits({(("user", "u"),): {"k": 10.0}}, "k"))
    assert quota.most_in_window("u", "c") == 30
    assert quota.admit("u", "c", 1000, 0) == 0
    assert quota.admit("u", "c", 1, 10) > 0
    assert quota.admit("u", "c", 1000, WINDOWS.samples * WINDOWS.sample_ms) == 0


def test_nothing_is_measured_without_quotas_and_measures_survive_a_change() -> None:
    quotas = ClientQuotas(WINDOWS)
    assert (quotas.producer, quotas.consumer, quotas.requests, quotas.connections) == (None,) * 4
    quotas.changed({(("client-id", None),): {"producer_byte_rate": 10.0}})
    assert quotas.producer is not None
    assert quotas.consumer is None
    assert quotas.producer.charge("u", "c", 60, 0) == 3000
    quotas.changed({(("client-id", None),): {"producer_byte_rate": 20.0}})
    assert quotas.producer.charge("u", "c", 60, 0) == 3000
    quotas.changed({})
    assert quotas.producer is None


def test_clients_that_went_away_are_forgotten() -> None:
    quota = RateQuota(WINDOWS, QuotaLimits({(("client-id", None),): {"k": 1e9}}, "k"))
    for number in range(5000):
        quota.charge("u", f"c{number}", 1, number * 100.0)
    assert len(quota._measures._kept) <= 1024


@pytest.mark.parametrize("limit", [5e-324, 1e-300, 1.0])
def test_the_longest_wait_is_what_an_answer_can_say(limit: float) -> None:
    limits = QuotaLimits({(("client-id", "c"),): {"k": limit}}, "k")
    rates, mutations = RateQuota(WINDOWS, limits), MutationQuota(WINDOWS, limits)
    assert rates.charge("u", "c", 1e12, 0) == 2**31 - 1
    assert mutations.charge("u", "c", 10**12, 0, strict=False) == 2**31 - 1
    assert mutations.charge("u", "c", 1, 1, strict=True) == 2**31 - 1
