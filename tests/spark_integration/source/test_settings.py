"""Options: their meaning, and the refusal of wrong ones."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from ottla import TopicPartition
from ottla.protocol.messages.list_offsets import EARLIEST, LATEST
from ottla.spark_integration.options import Queries, WrongOption
from ottla.spark_integration.source.option_table import OPTIONS
from ottla.spark_integration.source.pushed_filters import Pushed
from ottla.spark_integration.source.settings import SourceSettings, Topics, read_settings
from ottla.spark_integration.source.slices import Range

ADDRESS = {"kafka.bootstrap.servers": "localhost:9092"}
ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


def stream(**options: str) -> SourceSettings:
    return read_settings({**ADDRESS, "subscribe": "orders", **options}, streaming=True)


def batch(**options: str) -> SourceSettings:
    return read_settings({**ADDRESS, "subscribe": "orders", **options}, streaming=False)


def test_topics_are_named_in_one_of_three_ways() -> None:
    assert stream(subscribe="a, b,a").topics == Topics(names=("a", "b"))
    by_pattern = read_settings({**ADDRESS, "subscribepattern": "or.*"}, streaming=True)
    assert by_pattern.topics == Topics(pattern="or.*")
    assigned = read_settings({**ADDRESS, "assign": '{"orders": [1, 0]}'}, streaming=True)
    assert assigned.topics == Topics(partitions=(ORDERS_1, ORDERS_0))


def test_the_defaults_in_the_table_are_those_in_force() -> None:
    for kind, other in ((stream, Queries.BATCH), (batch, Queries.STREAM)):
        defaults = {row.name: row.default for row in OPTIONS if row.default and row.queries is not other}
        assert len(defaults) >= 3
        assert kind(**defaults) == kind()


def test_bounds() -> None:
    assert stream().starting.everywhere == LATEST
    assert batch().starting.everywhere == EARLIEST
    assert batch().ending.everywhere == LATEST
    assert stream(startingOffsets="Earliest").starting.everywhere == EARLIEST
    named = stream(startingOffsets='{"orders": {"0": 23, "1": -2}}').starting
    assert named.offsets == {ORDERS_0: 23, ORDERS_1: EARLIEST}
    both = stream(startingTimestamp="5", startingOffsetsByTimestamp='{"orders": {"0": 6}}').starting
    assert (both.timestamp_ms, both.timestamps) == (5, {})
    assert batch(endingOffsetsByTimestamp='{"orders": {"0": 6}}').ending.timestamps == {ORDERS_0: 6}


def test_isolation_is_what_either_option_says() -> None:
    assert stream().isolation is None
    assert stream(isolation="Atomic").isolation == "atomic"
    assert stream(**{"kafka.isolation.level": "read_committed"}).isolation == "read_committed"


def test_limits() -> None:
    given = stream(
        maxOffsetsPerTrigger="100",
        minOffsetsPerTrigger="10",
        maxTriggerDelay="90 s",
        minPartitions="4",
        failOnDataLoss="FALSE",
    )
    assert (given.max_offsets, given.min_offsets, given.max_delay_ms) == (100, 10, 90_000)
    assert (given.min_partitions, given.fail_on_data_loss) == (4, False)
    assert stream(**{"kafka.max.partition.fetch.bytes": "100"}).client["max_partition_fetch_bytes"] == 100


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "one of the options subscribe, subscribePattern and assign; none of them is given"),
        ({"subscribe": "a", "assign": '{"a": [0]}'}, "subscribe and assign are given"),
        ({"subscribe": " , "}, "'subscribe' names topics"),
        ({"assign": "orders"}, "'assign' is JSON like .* not 'orders'"),
        ({"assign": '{"orders": 0}'}, "partitions of 'orders' are 0"),
        ({"assign": "{}"}, "no partition is named"),
        (
            {"subscribe": "a", "startingOffset": "earliest"},
            "no option 'startingOffset'; did you mean 'startingOffsets'",
        ),
        ({"subscribe": "a", "kafka.isolation": "x"}, "did you mean 'kafka.isolation.level'"),
        ({"subscribe": "a", "startingOffsets": "soon"}, "'startingOffsets' is earliest, latest or JSON"),
        ({"subscribe": "a", "startingOffsets": '{"a": {"0": -3}}'}, "'a' has '0': -3"),
        ({"subscribe": "a", "startingOffsets": '{"a": [0]}'}, "'a' has \\[0\\]"),
        (
            {"subscribe": "a", "endingOffsets": "latest"},
            "'endingOffsets' is not for this kind of query: a stream does not end",
        ),
        (
            {"subscribe": "a", "maxOffsetsPerTrigger": "0"},
            "'maxOffsetsPerTrigger' is a whole number from 1 on, not '0'",
        ),
        (
            {"subscribe": "a", "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"},
            "minOffsetsPerTrigger is 9, above",
        ),
        ({"subscribe": "a", "maxTriggerDelay": "soon"}, "'maxTriggerDelay' is a time like 30s"),
        (
            {"subscribe": "a", "isolation": "serializable"},
            "'isolation' is atomic, read_committed or read_uncommitted",
        ),
        (
            {"subscribe": "a", "isolation": "atomic", "kafka.isolation.level": "read_committed"},
            "give one of them",
        ),
        ({"subscribe": "a", "includeHeaders": "yes"}, "'includeHeaders' is true or false"),
        (
            {"subscribe": "a", "largeMessageStore": "https://h/x"},
            "'largeMessageStore': the URL of an object store is",
        ),
        ({"subscribe": "a", "startingOffsetsByTimestampStrategy": "x"}, "is error or latest, not 'x'"),
    ],
)
def test_what_is_wrong_is_refused_by_name(options: dict[str, str], says: str) -> None:
    with pytest.raises(WrongOption, match=says):
        read_settings({**ADDRESS, **options}, streaming=True)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"startingOffsets": "latest"}, "from 'latest' on there is nothing"),
        ({"endingOffsets": "earliest"}, "up to 'earliest' there is nothing"),
        ({"startingOffsets": '{"orders": {"0": -1}}'}, "has -1, latest, for orders-0"),
        ({"endingOffsets": '{"orders": {"0": -2}}'}, "has -2, earliest, for orders-0"),
        ({"maxOffsetsPerTrigger": "5"}, "a batch has no triggers"),
    ],
)
def test_what_does_not_fit_a_batch_query_is_refused(options: dict[str, str], says: str) -> None:
    with pytest.raises(WrongOption, match=says):
        batch(**options)


def test_a_missing_address_is_told() -> None:
    with pytest.raises(WrongOption, match=r"'kafka.bootstrap.servers' is missing"):
        read_settings({"subscribe": "a"}, streaming=True)


TAKEN: list[tuple[Filter, Range | None]] = [
    (EqualTo(("topic",), "orders"), Range(ORDERS_1, 10, 20, None)),
    (EqualTo(("topic",), "others"), None),
    (Not(EqualTo(("topic",), "orders")), None),
    (StringStartsWith(("topic",), "or"), Range(ORDERS_1, 10, 20, None)),
    (In(("partition",), (1, 2)), Range(ORDERS_1, 10, 20, None)),
    (LessThan(("partition",), 1), None),
    (IsNotNull(("offset",)), Range(ORDERS_1, 10, 20, None)),
    (EqualTo(("offset",), 12), Range(ORDERS_1, 12, 13, None)),
    (GreaterThan(("offset",), 12), Range(ORDERS_1, 13, 20, None)),
    (GreaterThanOrEqual(("offset",), 12), Range(ORDERS_1, 12, 20, None)),
    (LessThan(("offset",), 12), Range(ORDERS_1, 10, 12, None)),
    (LessThanOrEqual(("offset",), 12), Range(ORDERS_1, 10, 13, None)),
    (LessThan(("offset",), 5), None),
]


@pytest.mark.parametrize(("filter_", "left"), TAKEN)
def test_filters_of_partitions_and_offsets_are_taken_over(filter_: Filter, left: Range | None) -> None:
    pushed = Pushed()
    assert pushed.take([filter_]) == []
    assert pushed.narrowed(Range(ORDERS_1, 10, 20, None), None) == left


def test_filters_that_are_taken_over_in_part_are_applied_by_spark_too() -> None:
    pushed = Pushed()
    left = [
        In(("offset",), (12, 15)),
        GreaterThanOrEqual(("timestamp",), datetime(1970, 1, 1, 0, 0, 1, 999, tzinfo=UTC)),
        EqualTo(("key",), b"k"),
        IsNotNull(("key",)),
        EqualTo(("topic", "inner"), "orders"),
        GreaterThan(("timestamp",), datetime(1971, 1, 1)),
        LessThan(("timestamp",), datetime(1971, 1, 1, tzinfo=UTC)),
    ]
    assert pushed.take(left) == left
    assert pushed.earliest_ms == 1000
    assert pushed.narrowed(Range(ORDERS_1, 10, 20, None), None) == Range(ORDERS_1, 12, 16, None)
    assert pushed.narrowed(Range(ORDERS_1, 10, 20, None), 14) == Range(ORDERS_1, 14, 16, None)
    assert pushed.narrowed(Range(ORDERS_1, 10, 20, None), 1 << 62) is None
