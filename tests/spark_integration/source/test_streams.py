"""`spark.readStream.format("ottla")` with a cluster: every committed record once, whole transactions, despite
interruptions.
"""

from __future__ import annotations

import contextlib
import json
from collections import defaultdict
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from ottla import TopicPartition
from tests.cluster import wait_until

from .reading import SPARK_TIMEOUT_S, Run, Topics

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(170),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"),
]


def interleaved(topics: Topics, topic: str, random: Random, prefix: str) -> tuple[set[str], set[str]]:
    """Write transactions of three producers over three partitions, some aborted, and plain records; one transaction
    stays open for long.

    Return the values committed meanwhile, and those of the long transaction.
    """
    committed: set[str] = set()
    late: set[str] = set()
    producers = [topics.producer(transactional_id=f"{topic}-{name}") for name in range(3)]
    slow = topics.producer(transactional_id=f"{topic}-slow")
    plain = topics.producer()
    for producer in (*producers, slow, plain):
        producer.start()
    slow.begin_transaction()
    written: list[set[str]] = [set() for _ in producers]
    for step in range(120):
        partition, who = random.randrange(3), random.randrange(5)
        if who < 3 and not written[who]:
            producers[who].begin_transaction()
        if who < 3:
            value = f"{prefix}-t{who}-{step}"
            producers[who].send(topic, value.encode(), partition=partition).result()
            written[who].add(value)
            if random.random() < 0.3:
                if random.random() < 0.7:
                    producers[who].commit_transaction()
                    committed.add(" ".join(sorted(written[who])))
                else:
                    producers[who].abort_transaction()
                written[who].clear()
        else:
            value = f"{prefix}-{'s' if who == 3 else 'p'}-{step}"
            (slow if who == 3 else plain).send(topic, value.encode(), partition=partition).result()
            (late if who == 3 else committed).add(value)
    for who, producer in enumerate(producers):
        if written[who]:
            producer.abort_transaction()
        producer.stop()
    plain.stop()
    slow.commit_transaction()
    slow.stop()
    committed.add(" ".join(sorted(late)))
    return committed, late


def test_no_micro_batch_tears_a_transaction_and_all_is_read_once_across_restarts(
    topics: Topics, tmp_path: Path
) -> None:
    random = Random(7)
    topic = topics.create("torn", 3)
    transactions, _ = interleaved(topics, topic, random, "a")
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "60"}
    first = Run(topics.stream(**options), tmp_path)
    more, _ = interleaved(topics, topic, random, "b")
    second = Run(topics.stream(**options, minPartitions="5"), tmp_path)
    assert len(first.batches) + len(second.batches) > 4
    batch_of: dict[str, int] = {}
    for number, values in enumerate([*first.batches, *second.batches]):
        for value in values:
            assert value not in batch_of, f"{value} was read twice"
            batch_of[value] = number
    assert set(batch_of) == {value for values in transactions | more for value in values.split()}
    for values in transactions | more:
        assert len({batch_of[value] for value in values.split()}) <= 1, f"{values} is torn"


def test_progress_tells_how_far_behind_a_query_is(topics: Topics, tmp_path: Path) -> None:
    topic = topics.create("behind", 2)
    for partition in (0, 1):
        topics.write(topic, range(50), partition)
    run = Run(
        topics.stream(
            subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="40", progressGroup="lag"
        ),
        tmp_path,
    )
    assert [len(values) for values in run.batches] == [40, 40, 20]
    behind = [
        json.loads(progress.sources[0].latestOffset)["behind"]
        for progress in run.progress
        if progress.numInputRows
    ]
    assert behind == [
        {"records": 60, "mostOfAPartition": 30},
        {"records": 20, "mostOfAPartition": 10},
        {"records": 0, "mostOfAPartition": 0},
    ]
    assert topics.admin.committed_offsets("lag") == dict.fromkeys(
        [TopicPartition(topic, 0), TopicPartition(topic, 1)], 50
    )


def test_topics_and_partitions_that_come_later_are_read(topics: Topics, tmp_path: Path) -> None:
    topic = topics.create("growing.one", 1)
    topics.write(topic, ["first"])
    options = {"subscribePattern": r"growing\..*", "startingOffsets": "earliest"}
    assert Run(topics.stream(**options), tmp_path).values == ["first"]
    topics.admin.create_partitions(topic, 2)
    other = topics.create("growing.other", 1)
    topics.write(topic, ["second"], 1)
    topics.write(other, ["third"])
    assert Run(topics.stream(**options), tmp_path).values == ["second", "third"]


def test_from_the_latest_on_transactions_come_whole(topics: Topics, tmp_path: Path) -> None:
    topic = topics.create("latest", 1)
    with topics.producer(transactional_id="across") as producer:
        producer.begin_transaction()
        producer.send(topic, b"before").result()
        topics.write(topic, ["too early"])
        assert Run(topics.stream(subscribe=topic), tmp_path).values == []
        producer.send(topic, b"after").result()
        producer.commit_transaction()
    assert Run(topics.stream(subscribe=topic), tmp_path).values == ["after", "before"]


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_the_isolation_levels_of_kafka(topics: Topics, tmp_path: Path, level: str) -> None:
    topic = topics.create(f"level.{level}", 1)
    with topics.producer(transactional_id=topic) as producer:
        with producer.transaction():
            producer.send(topic, b"committed")
        producer.begin_transaction()
        producer.send(topic, b"open").result()
        options = {"subscribe": topic, "startingOffsets": "earliest", "kafka__isolation__level": level}
        first = Run(topics.stream(**options), tmp_path).values
        producer.abort_transaction()
    assert first == (["committed"] if level == "read_committed" else ["committed", "open"])


def test_what_was_deleted_ends_a_query_or_is_passed_over(topics: Topics, tmp_path: Path) -> None:
    kept, lost = topics.create("kept", 1), topics.create("lost", 1)
    for topic in (kept, lost):
        topics.write(topic, [f"{topic}-{number}" for number in range(5)])
    options = {"subscribe": f"{kept},{lost}", "startingOffsets": "earliest"}
    assert len(Run(topics.stream(**options), tmp_path).values) == 10
    topics.admin.delete_topics([lost])
    with pytest.raises(Exception, match="partitions were deleted, or are not read any more: lost-0"):
        Run(topics.stream(**options), tmp_path)
    topics.write(kept, [f"{kept}-{number}" for number in range(5, 10)])
    topics.admin.delete_records({TopicPartition(kept, 0): 8})
    assert Run(topics.stream(**options, failOnDataLoss="false"), tmp_path).values == ["kept-8", "kept-9"]
    topics.write(kept, [f"{kept}-{number}" for number in range(10, 12)])
    topics.admin.delete_records({TopicPartition(kept, 0): 11})
    with pytest.raises(Exception, match="kept-0 begins at offset 11 by now, and was to be read from 10 on"):
        Run(topics.stream(**options), tmp_path)
    topics.create(lost, 1)
    topics.write(lost, ["another topic"])
    lenient = Run(topics.stream(**options, failOnDataLoss="false"), tmp_path)
    assert lenient.values == ["another topic", "kept-11"]


def test_a_query_that_fails_goes_on_where_it_was(topics: Topics, tmp_path: Path) -> None:
    topic = topics.create("failing", 1)
    topics.write(topic, range(6))
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "2"}
    seen: dict[int, list[list[bytes]]] = defaultdict(list)

    def fails_once(frame: Any, batch_id: int) -> None:
        seen[batch_id].append([row.value for row in frame.collect()])
        if batch_id == 1 and len(seen[1]) == 1:
            raise RuntimeError("something else went wrong")

    for _ in range(2):
        writing = topics.stream(**options).writeStream.foreachBatch(fails_once)
        query = writing.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        with contextlib.suppress(StreamingQueryException):
            query.awaitTermination(SPARK_TIMEOUT_S)
        query.stop()
    assert dict(seen) == {0: [[b"0", b"1"]], 1: [[b"2", b"3"]] * 2, 2: [[b"4", b"5"]]}


def test_a_running_query_takes_what_comes(topics: Topics, tmp_path: Path) -> None:
    """The query has a continuous trigger, and a group that follows it."""
    topic = topics.create("running", 1)
    seen: list[bytes] = []
    frame = topics.stream(
        subscribe=topic,
        startingOffsets="earliest",
        minOffsetsPerTrigger="3",
        maxTriggerDelay="1h",
        progressGroup="follower",
    )
    query = (
        frame.writeStream.foreachBatch(lambda frame, _: seen.extend(row.value for row in frame.collect()))
        .option("checkpointLocation", str(tmp_path))
        .trigger(processingTime="100 milliseconds")
        .start()
    )
    try:
        topics.write(topic, range(2))
        topics.write(topic, range(2, 4))
        wait_until(lambda: len(seen) == 4, "four records", 60)
        wait_until(
            lambda: topics.admin.committed_offsets("follower") == {TopicPartition(topic, 0): 4},
            "the group's offset, committed as Spark looks for more",
            60,
        )
    finally:
        query.stop()
    assert query.exception() is None


def test_a_checkpoint_of_something_else_is_refused(topics: Topics, tmp_path: Path) -> None:
    topic = topics.create("foreign", 1)
    topics.write(topic, range(3))
    assert len(Run(topics.stream(subscribe=topic, startingOffsets="earliest"), tmp_path).values) == 3
    (offsets,) = (tmp_path / "offsets").glob("[0-9]*")
    lines = offsets.read_text().splitlines()
    offsets.write_text("\n".join([*lines[:-1], json.dumps({topic: {"0": 3}})]))
    (tmp_path / "offsets" / f".{offsets.name}.crc").unlink()
    with pytest.raises(Exception, match=r"which format.*ottla.* has not written"):
        Run(topics.stream(subscribe=topic), tmp_path)
