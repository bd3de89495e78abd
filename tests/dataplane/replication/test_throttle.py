"""The rates of replicas that catch up: the bucket against its definition, and a leader's and follower's sessions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.dataplane.replication.throttle import (
    HELD_MAX_S,
    UNLIMITED,
    Throttle,
    ThrottledPartitions,
    TokenBucket,
    is_held,
    rate_of,
)


@given(
    st.integers(1, 10_000_000),
    st.lists(st.tuples(st.floats(0, 5), st.integers(1, 2_000_000)), max_size=40),
)
def test_a_bucket_lets_through_its_rate_and_at_most_one_batch_more(
    rate: int, sends: list[tuple[float, int]]
) -> None:
    bucket = TokenBucket()
    bucket.set_rate(rate, 0.0)
    burst = bucket.allowance(0.0)
    now, sent, largest = 0.0, 0, 0
    for pause, size in sends:
        now += pause
        if bucket.allowance(now) > 0:
            bucket.spend(size, now)
            sent += size
            largest = max(largest, size)
        else:
            wait = bucket.wait_s(now)
            assert 0 < wait <= HELD_MAX_S
    assert sent <= rate * now + burst + largest + 1
    assert burst <= max(rate / 5, 16 * 1024)


def test_waiting_as_long_as_it_says_is_enough() -> None:
    bucket = TokenBucket()
    bucket.set_rate(100_000, 0.0)
    bucket.spend(bucket.allowance(0.0) + 50_000, 0.0)
    assert bucket.allowance(0.0) == 0
    assert bucket.wait_s(0.0) == pytest.approx(0.5, abs=0.001)
    assert bucket.allowance(bucket.wait_s(0.0) + 0.0001) > 0


def test_a_rate_of_zero_stops_and_no_rate_lets_everything_go() -> None:
    now = [0.0]
    throttle = Throttle(lambda: now[0])
    assert not throttle.limited
    assert throttle.allowance() == UNLIMITED
    throttle.set_rate(0)
    now[0] = 1000.0
    assert throttle.limited
    assert throttle.allowance() == 0
    assert throttle.wait_s() == HELD_MAX_S
    throttle.set_rate(1_000_000)
    now[0] += 0.1
    assert throttle.allowance() > 0
    throttle.spend(10**9)
    throttle.set_rate(UNLIMITED)
    assert throttle.allowance() == UNLIMITED
    assert throttle.wait_s() == 0


def test_an_old_debt_is_not_carried_into_another_rate_for_longer_than_a_second() -> None:
    bucket = TokenBucket()
    bucket.set_rate(1_000, 0.0)
    bucket.spend(10_000_000, 0.0)
    bucket.set_rate(2_000, 1.0)
    assert bucket.allowance(2.1) > 0


def test_which_replicas_are_throttled() -> None:
    listed = ThrottledPartitions.parse("0:1, 1:2,2:1", broker_id=1)
    assert [index in listed for index in range(4)] == [True, False, True, False]
    everything = ThrottledPartitions.parse("*", broker_id=1)
    assert 77 in everything
    assert 0 not in ThrottledPartitions.parse("", broker_id=1)
    assert is_held(everything, 0, broker_id=3, isr=(1, 2))
    assert not is_held(everything, 0, broker_id=2, isr=(1, 2))


def test_a_brokers_own_rate_comes_before_that_of_all() -> None:
    configs = {(4, ""): {"r": "5"}, (4, "2"): {"r": "7"}}
    assert [rate_of(configs, broker, "r") for broker in (1, 2)] == [5, 7]
    assert rate_of(configs, 1, "other") == UNLIMITED
