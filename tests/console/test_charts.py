"""Charts are drawn where they belong, whatever comes in."""

from __future__ import annotations

import math
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.console.charts import KIB, Series, ceiling, legend, line_chart

NAMESPACE = "{http://www.w3.org/2000/svg}"
VALUES = st.one_of(st.none(), st.floats(min_value=0, max_value=1e15, allow_nan=False))


def lines(svg: str) -> list[list[tuple[float, float]]]:
    drawing = ElementTree.fromstring(svg)
    return [
        [(float(x), float(y)) for x, y in (point.split(",") for point in (line.get("points") or "").split())]
        for line in drawing.iter("polyline")
    ]


def test_newer_points_stand_further_right_and_larger_ones_higher() -> None:
    svg = line_chart(
        "records", [Series("in", [(90.0, 0.0), (95.0, 50.0), (100.0, 100.0)])], now_s=100, span_s=10
    )
    (line,) = lines(svg)
    assert [x for x, _ in line] == sorted(x for x, _ in line)
    assert [y for _, y in line] == sorted((y for _, y in line), reverse=True)
    assert line[0][1] == 158  # 0 is the bottom
    assert line[-1] == (632, 10)  # now and the most, in the corner


def test_a_gap_is_not_bridged() -> None:
    svg = line_chart("records", [Series("in", [(1, 1), (2, None), (3, 1), (4, 2)])], now_s=4, span_s=4)
    assert [len(line) for line in lines(svg)] == [2, 2]  # one point alone is a short line


def test_what_is_older_than_the_chart_is_left_out_and_does_not_stretch_it() -> None:
    svg = line_chart("records", [Series("in", [(1, 1e9), (99, 1), (100, 1)])], now_s=100, span_s=10)
    assert lines(svg) == [[(575.2, 10.0), (632.0, 10.0)]]


def test_without_values_it_says_so() -> None:
    assert "no values yet" in line_chart("records", [], now_s=1, span_s=1)
    assert "no values yet" in line_chart("records", [Series("in", [(1, math.nan)])], now_s=1, span_s=1)


def test_names_cannot_end_the_markup() -> None:
    hostile = "</title><script>alert(1)</script>\"'"
    drawn = line_chart(hostile, [Series(hostile, [(1, 1)])], now_s=1, span_s=1) + legend(
        [Series(hostile, [])]
    )
    assert "<script" not in drawn
    assert "style=" not in drawn


def test_a_chart_begins_where_its_history_begins() -> None:
    svg = line_chart("records", [Series("in", [(940.0, 1.0), (1000.0, 2.0)])], now_s=1000, span_s=3600)
    assert lines(svg)[0][0][0] == 64  # the left edge
    assert "60 s ago" in svg
    young = line_chart("records", [Series("in", [(999.0, 1.0), (1000.0, 2.0)])], now_s=1000, span_s=3600)
    assert "30 s ago" in young
    assert lines(young)[0][0][0] > 600


def test_the_mouse_finds_times_and_values_without_a_script() -> None:
    lines_drawn = [Series("in", [(0.0, 5.0), (600.0, 7.0)]), Series("out", [(600.0, 3.0)])]
    drawing = ElementTree.fromstring(line_chart("records", lines_drawn, now_s=600, span_s=600))
    told = [title.text for title in drawing.iterfind(".//path/title")]
    assert told == ["00:00:00 UTC: in 5", "00:10:00 UTC: in 7; out 3"]


@pytest.mark.parametrize(
    ("value", "top"),
    [(0, 1), (-1, 1), (math.inf, 1), (0.03, 0.05), (1, 1), (3, 5), (5.1, 10), (12_345, 20_000)],
)
def test_the_scale_ends_at_a_round_number(value: float, top: float) -> None:
    assert ceiling(value) == pytest.approx(top)


@pytest.mark.parametrize(
    ("value", "top"),
    [
        (3, 5),
        (900, 1000),
        (1025, 2 * 1024),
        (600_000, 1000 * 1024),
        (1010 * 1024, 1024**2),
        (3e6, 5 * 1024**2),
    ],
)
def test_the_scale_of_bytes_ends_at_a_round_number(value: float, top: float) -> None:
    assert ceiling(value, KIB) == pytest.approx(top)


@given(st.lists(st.tuples(st.floats(0, 1000), VALUES), max_size=30))
def test_every_point_is_inside(points: list[tuple[float, float | None]]) -> None:
    svg = line_chart(
        "any", [Series("in", sorted(points, key=lambda point: point[0]))], now_s=1000, span_s=600
    )
    for line in lines(svg):
        assert all(63 <= x <= 634 and 9 <= y <= 159 for x, y in line)
