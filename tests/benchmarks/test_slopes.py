"""The slopes that a soak detects: a leak, and neither noise, nor initial growth, nor single spikes."""

from __future__ import annotations

import random

import pytest

from benchmarks.slopes import Reading, line, without_warm_up

ALLOWED_MB = 4.0
HOUR_S = 3_600


def readings(mb_per_hour: float, *, noise_mb: float, seconds: int = HOUR_S) -> list[Reading]:
    chance = random.Random(7)
    return [
        (at, 60 + mb_per_hour * at / HOUR_S + chance.uniform(-noise_mb, noise_mb))
        for at in range(0, seconds, 10)
    ]


def is_slope(found: list[Reading]) -> bool:
    fitted = line(without_warm_up(found))
    assert fitted is not None
    return fitted.is_slope(ALLOWED_MB)


@pytest.mark.parametrize(("mb_per_hour", "expected"), [(0, False), (3, False), (12, True), (-30, False)])
def test_a_leak_is_a_slope_and_noise_is_none(mb_per_hour: float, expected: bool) -> None:
    assert is_slope(readings(mb_per_hour, noise_mb=3)) is expected


def test_how_steep_it_is_is_told() -> None:
    fitted = line(readings(30, noise_mb=1))
    assert fitted is not None
    assert fitted.per_hour == pytest.approx(30, abs=2)
    assert fitted.first == pytest.approx(60, abs=2)


def test_what_fills_up_in_the_first_third_is_no_slope() -> None:
    assert not is_slope([(float(at), 60 + min(at, 1_000) / 20) for at in range(0, HOUR_S, 10)])


def test_a_rise_that_is_less_than_the_scatter_is_no_slope() -> None:
    assert not is_slope(readings(12, noise_mb=200))


def test_spikes_do_not_count() -> None:
    spiked = [(at, 500.0 if at > 3_000 and at % 100 == 0 else 60.0) for at in range(0, HOUR_S, 10)]
    assert not is_slope(spiked)


def test_a_moment_tells_nothing() -> None:
    assert line([]) is None
    assert line([(0, 1), (10, 2)]) is None
