"""`spark.read.format("ottla")` with a cluster."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from ottla import TopicPartition
from ottla.testing import LocalCluster
from tests.poisoned import poison

from .reading import Topics, values

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(170),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"),
]


def test_rows_are_those_of_sparks_own_source(topics: Topics) -> None:
    topic = topics.create("rows", 2)
    with topics.producer() as producer:
        headers = [("trace", b"4711"), ("none", None)]
        producer.send(topic, b"v", key=b"k", partition=0, timestamp_ms=1_700_000_000_123, headers=headers)
        producer.send(topic, None, partition=1, timestamp_ms=1_700_000_000_456)
    frame = topics.batch(subscribe=topic, includeHeaders="true").orderBy("partition")
    assert [(field.name, field.dataType.simpleString()) for field in frame.schema.fields] == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]
    first, second = frame.collect()
    at = first.timestamp.astimezone(UTC) if first.timestamp.tzinfo else first.timestamp
    assert (first.key, first.value, first.topic, first.partition, first.offset) == (b"k", b"v", "rows", 0, 0)
    assert at.microsecond == 123_000
    assert (first.timestampType, [tuple(header) for header in first.headers]) == (0, headers)
    assert (second.key, second.value, second.partition, second.headers) == (None, None, 1, None)
    assert "headers" not in topics.batch(subscribe=topic).columns
    stamped = topics.create("stamped", message_timestamp_type="LogAppendTime")
    topics.write(stamped, "x", timestamp_ms=5)
    (row,) = (
        topics.batch(subscribe=stamped)
        .select("timestampType", F.unix_millis("timestamp").alias("ms"))
        .collect()
    )
    assert row.timestampType == 1
    assert row.ms > 1_700_000_000_000


def test_each_way_to_name_topics_and_offsets(topics: Topics) -> None:
    first, other = topics.create("named.one", 2), topics.create("named.other", 1)
    for partition in (0, 1):
        topics.write(first, (f"{partition}-{number}" for number in range(5)), partition)
    topics.write(other, ["other"])
    everything = sorted(["other", *(f"{partition}-{number}" for partition in (0, 1) for number in range(5))])
    assert values(topics.batch(subscribe=f"{first}, {other}")) == everything
    assert values(topics.batch(subscribePattern=r"named\..*")) == everything
    assert values(topics.batch(subscribePattern=r"named\.oth")) == []
    assert values(topics.batch(assign=json.dumps({first: [1]}))) == [f"1-{number}" for number in range(5)]
    ranged = topics.batch(
        subscribe=first,
        startingOffsets=json.dumps({first: {"0": 1, "1": -2}}),
        endingOffsets=json.dumps({first: {"0": 3, "1": -1}}),
        minPartitions="5",
    )
    assert ranged.rdd.getNumPartitions() >= 5
    assert values(ranged) == ["0-1", "0-2", *(f"1-{number}" for number in range(5))]


def test_bounds_by_time(topics: Topics) -> None:
    topic = topics.create("timed", 1)
    for stamp in (1000, 2000, 3000):
        topics.write(topic, [stamp], timestamp_ms=stamp)
    assert values(topics.batch(subscribe=topic, startingTimestamp="1500")) == ["2000", "3000"]
    assert values(topics.batch(subscribe=topic, startingTimestamp="1000", endingTimestamp="2001")) == [
        "1000",
        "2000",
    ]
    by_partition = json.dumps({topic: {"0": 3000}})
    assert values(topics.batch(subscribe=topic, startingOffsetsByTimestamp=by_partition)) == ["3000"]
    assert values(topics.batch(subscribe=topic, endingOffsetsByTimestamp=by_partition)) == ["1000", "2000"]
    with pytest.raises(Exception, match="timed-0 has no record from 9000 ms on"):
        topics.batch(subscribe=topic, startingTimestamp="9000").collect()
    late = topics.batch(
        subscribe=topic, startingTimestamp="9000", startingOffsetsByTimestampStrategy="latest"
    )
    assert values(late) == []


def test_only_what_is_committed_is_read(topics: Topics) -> None:
    topic = topics.create("committed", 2)
    with topics.producer(transactional_id="long") as slow, topics.producer(transactional_id="fast") as fast:
        slow.begin_transaction()
        slow.send(topic, b"open", partition=0).result()
        with fast.transaction():
            for partition in (0, 1):
                fast.send(topic, b"fast", partition=partition)
        fast.begin_transaction()
        fast.send(topic, b"aborted", partition=0).result()
        fast.abort_transaction()
        topics.write(topic, ["plain"], 0)
        read = {
            level: values(topics.batch(subscribe=topic, isolation=level))
            for level in ("atomic", "read_committed", "read_uncommitted")
        }
        slow.commit_transaction()
    assert read["atomic"] == ["fast", "fast", "plain"], "an open transaction delays no reader"
    assert read["read_committed"] == ["fast"], "later records wait"
    assert read["read_uncommitted"] == ["aborted", "fast", "fast", "open", "plain"]
    assert values(topics.batch(subscribe=topic)) == ["fast", "fast", "open", "plain"]


def test_filters_reach_the_source(topics: Topics) -> None:
    """Rows that are not fetched are missing in the plan's row count."""
    topic = topics.create("filtered", 3)
    for partition in range(3):
        topics.write(topic, range(100), partition, timestamp_ms=1_000_000 + partition)
    frame = topics.batch(subscribe=topic)
    filtered = frame.where("partition = 1 and offset >= 90 and offset < 95")
    assert values(filtered) == ["90", "91", "92", "93", "94"]
    assert rows_read(filtered) == 5
    assert filtered.rdd.getNumPartitions() == 1
    late = frame.where(F.col("timestamp") >= F.lit(datetime(1970, 1, 1, 0, 16, 40, 2000, tzinfo=UTC)))
    assert late.count() == 100
    assert rows_read(late) == 100
    assert frame.where("topic = 'other'").count() == 0
    assert frame.where("value = '7' and partition in (0, 2)").count() == 2


def rows_read(frame: Any) -> int:
    """Return how many rows came out of the scan, before Spark's own filters."""
    frame.collect()
    plan = frame._jdf.queryExecution().executedPlan()
    while plan.children().size():
        plan = plan.children().head()
    return int(plan.metrics().apply("numOutputRows").value())


def test_errors_say_what_is_wrong(topics: Topics) -> None:
    topic = topics.create("complaints", 1)
    topics.write(topic, range(10))
    topics.admin.delete_records({TopicPartition(topic, 0): 4})
    wrong: list[tuple[dict[str, object], str]] = [
        ({"subscribe": "complaint"}, "topic 'complaint', which is not there; did you mean 'complaints'"),
        ({"assign": json.dumps({topic: [7]})}, "partition 7 of 'complaints', which is not there"),
        (
            {"subscribe": topic, "startingOffset": "x"},
            "no option 'startingoffset'; did you mean 'startingOffsets'",
        ),
        (
            {"subscribe": topic, "startingOffsets": json.dumps({topic: {"0": 1}})},
            "complaints-0 begins at offset 4, and 1 was asked for",
        ),
        ({"subscribe": topic, "startingOffsets": json.dumps({topic: {"1": 1}})}, "lacks complaints-0"),
        ({"subscribe": topic, "subscribePattern": "x"}, "subscribe and subscribePattern are given"),
        ({"subscribePattern": "("}, "is no regular expression"),
    ]
    for options, says in wrong:
        with pytest.raises(Exception, match=says):
            topics.batch(**options).collect()
    lenient = {"startingOffsets": json.dumps({topic: {"0": 1}}), "failOnDataLoss": "false"}
    assert len(values(topics.batch(subscribe=topic, **lenient))) == 6


@pytest.mark.parametrize("isolation", ["read_committed", "atomic"])
def test_a_batch_that_cannot_be_read_ends_the_query_or_is_passed_over(topics: Topics, isolation: str) -> None:
    topic = topics.create(f"poisoned-{isolation}")
    for value in "abc":
        topics.write(topic, [value])
    (folders,) = topics.admin.describe_log_dirs().values()
    assert not isinstance(folders, Exception)
    poison(Path(folders[0].path), topic, 1)
    with pytest.raises(Exception, match=f"{topic}-0: the batch at offset 1 cannot be read.*failOnDataLoss"):
        topics.batch(subscribe=topic, isolation=isolation).collect()
    assert values(topics.batch(subscribe=topic, isolation=isolation, failOnDataLoss="false")) == ["a", "c"]


def test_a_cluster_that_is_away_is_told_of(spark: Any) -> None:
    with LocalCluster() as gone:
        address = gone.bootstrap_servers
    reader = spark.read.format("ottla").option("kafka.bootstrap.servers", address).option("subscribe", "x")
    with pytest.raises(Exception, match=f"no broker answers at {address}"):
        reader.load().collect()
