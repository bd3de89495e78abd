"""Prometheus' own parser reads what we write."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from ottla.protocol.exposition import (
    ROWS_PER_PIECE,
    Family,
    Histogram,
    Metric,
    MetricKind,
    exposition,
    labelled,
)

SIZE = Metric("log_size", MetricKind.GAUGE, "Bytes of a log.", ("topic", "partition"))
TIMES = Metric("times_ms", MetricKind.HISTOGRAM, "Milliseconds.", ("request",))


@given(st.dictionaries(st.tuples(st.text(), st.integers()), st.integers(-(2**53), 2**53)))
def test_labels_and_values_come_back(samples: dict[tuple[str, int], int]) -> None:
    text = "".join(exposition([Family(SIZE, samples.items())]))
    (family,) = text_string_to_metric_families(text)
    assert (family.name, family.type, family.documentation) == ("log_size", "gauge", "Bytes of a log.")
    read = {(s.labels["topic"], int(s.labels["partition"])): s.value for s in family.samples}
    assert read == samples


@given(st.lists(st.floats(0, 100)))
def test_a_histogram_counts_what_lies_at_or_below_each_bound(observed: list[float]) -> None:
    histogram = Histogram((1, 10, 50))
    for value in observed:
        histogram.observe(value)
    (family,) = text_string_to_metric_families(
        "".join(exposition([Family(TIMES, [(("Fetch",), histogram)])]))
    )
    buckets = {s.labels["le"]: s.value for s in family.samples if s.name == "times_ms_bucket"}
    assert buckets == {
        bound: sum(value <= float(bound) for value in observed) for bound in ("1", "10", "50", "+Inf")
    }
    sums = {s.name: s.value for s in family.samples}
    assert sums["times_ms_count"] == len(observed)
    assert abs(sums["times_ms_sum"] - sum(observed)) < 1e-6


def test_many_samples_come_in_pieces() -> None:
    rows = [(("orders", n), n) for n in range(3 * ROWS_PER_PIECE + 1)]
    pieces = list(exposition([Family(SIZE, iter(rows))]))
    assert [piece.count("\nlog_size{") + piece.startswith("log_size{") for piece in pieces] == [
        ROWS_PER_PIECE,
        ROWS_PER_PIECE,
        ROWS_PER_PIECE,
        1,
    ]


@given(st.dictionaries(st.tuples(st.text(), st.integers()), st.integers(-(2**53), 2**53)))
def test_labels_that_are_rendered_before_say_the_same(samples: dict[tuple[str, int], int]) -> None:
    rendered = [(labelled(SIZE.labels, labels), value) for labels, value in samples.items()]
    once = "".join(exposition([Family(SIZE, rendered=rendered)]))
    assert once == "".join(exposition([Family(SIZE, samples.items())]))


def test_what_takes_time_gives_others_a_turn() -> None:
    pieces = list(exposition([None, Family(SIZE, [(("orders", 0), 1)]), None]))
    assert (pieces[0], pieces[2]) == ("", "")
    assert pieces[1].endswith('log_size{topic="orders",partition="0"} 1\n')
