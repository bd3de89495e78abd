"""The history of series: several resolutions, gaps, and a bounded number of points and of topics."""

from __future__ import annotations

from itertools import pairwise

import pytest

from ottla.console.bounds import POINTS_MAX, TOPICS_BUSY, TOPICS_REMEMBERED_MAX
from ottla.console.charts import SPANS
from ottla.console.live.counters import Rates, TopicTraffic
from ottla.console.live.history import SeriesHistory, highest
from ottla.console.live.topic_histories import TopicHistories

DAY_S = 86_400.0


def test_a_day_of_samples_is_kept_in_a_bounded_number_of_points() -> None:
    history = SeriesHistory()
    for second in range(0, 2 * int(DAY_S), 2):
        history.note(float(second), float(second))
    now_s = 2 * DAY_S - 2
    for span_s in SPANS.values():
        points = history.points(span_s, now_s)
        assert POINTS_MAX * 0.9 <= len(points) <= POINTS_MAX
        assert points[-1][0] == now_s
        assert points[0][0] >= now_s - span_s
        assert points[0][0] == pytest.approx(now_s - span_s, abs=2 * span_s / POINTS_MAX)
        for (before_s, before), (after_s, after) in pairwise(points):
            assert before_s < after_s
            assert before is not None
            assert after is not None
            assert before < after


def test_a_coarse_point_is_the_mean_of_its_samples_or_the_highest() -> None:
    rates, faults = SeriesHistory(), SeriesHistory(highest)
    for second, value in enumerate((10.0, 0.0, 20.0, 30.0)):
        rates.note(float(second), value)
        faults.note(float(second), value)
    assert rates.points(DAY_S, 3.0) == [(3.0, 15.0)]
    assert faults.points(DAY_S, 3.0) == [(3.0, 30.0)]


def test_samples_at_rest_are_joined_by_a_line_and_an_outage_is_a_gap() -> None:
    history = SeriesHistory()
    for at_s, value in ((0.0, 1.0), (60.0, 2.0), (120.0, None), (180.0, 4.0)):
        history.note(at_s, value)
    assert history.points(600, 180) == [(0.0, 1.0), (60.0, 2.0), (120.0, None), (180.0, 4.0)]


def test_a_gap_within_a_coarse_point_takes_nothing_from_it() -> None:
    history = SeriesHistory()
    for at_s, value in ((0.0, None), (1.0, 8.0), (2.0, None), (3.0, 4.0)):
        history.note(at_s, value)
    assert history.points(DAY_S, 3.0) == [(3.0, 6.0)]


def test_a_gap_is_open_until_the_next_value() -> None:
    history = SeriesHistory()
    history.note(0.0, 1.0)
    for at_s in (0.0, 30.0, 60.0):
        history.note(at_s, None)
    assert history.points(600, 60) == [(0.0, 1.0), (0.0, None)]
    history.note(7_200.0, 2.0)
    assert history.points(DAY_S, 7_200) == [(0.0, 1.0), (0.0, None), (7_200.0, 2.0)]


def rates(**records_in: float) -> Rates:
    return Rates({}, {TopicTraffic.RECORDS_IN: records_in})


def values(histories: TopicHistories, topic: str) -> list[float | None]:
    return [value for _, value in histories.points(topic, TopicTraffic.RECORDS_IN, 600, 100)]


def test_busy_topics_have_a_history_before_a_page_shows_them() -> None:
    histories = TopicHistories()
    histories.note(1.0, rates(**{f"t{number:03}": float(number) for number in range(TOPICS_BUSY * 5)}))
    assert values(histories, "t099") == [99]
    assert values(histories, "t080") == [80]
    assert values(histories, "t079") == []


def test_a_topic_that_a_page_shows_gets_a_history() -> None:
    histories = TopicHistories()
    histories.show("quiet")
    assert values(histories, "quiet") == []
    histories.note(1.0, rates(busy=5.0))
    histories.note(4.0, Rates())
    histories.note(7.0, rates(quiet=2.0))
    assert values(histories, "quiet") == [0, None, 2]
    assert histories.points("quiet", TopicTraffic.BYTES_OUT, 600, 100) == []


def test_the_topic_that_was_needed_for_longest_is_forgotten() -> None:
    histories = TopicHistories()
    for number in range(TOPICS_REMEMBERED_MAX):
        histories.show(f"t{number}")
    histories.note(1.0, rates(t0=5.0))
    histories.show("another")
    histories.note(4.0, rates(t0=5.0))
    assert values(histories, "t0") == [5, 5]
    assert values(histories, "t1") == []
    assert values(histories, "another") == [0]
