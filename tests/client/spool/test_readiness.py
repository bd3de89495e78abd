"""Records of one transaction: a run in their order, for partitions that are ready, or that were late alone."""

from __future__ import annotations

import random

import pytest

from ottla.client.connections.metadata import KnownTopic, ToldPartition
from ottla.client.spool.frames import SpooledRecord
from ottla.client.spool.readiness import ANY_PARTITION, Placed, ReadyPartitions, Run
from ottla.protocol.errors import ErrorCode

TOPIC_ID = bytes(16)


def topic(name: str, *leaders: int) -> dict[str, KnownTopic]:
    partitions = {index: ToldPartition(leader, 0, (), (), ()) for index, leader in enumerate(leaders)}
    return {name: KnownTopic(name, TOPIC_ID, False, ErrorCode.NONE, partitions)}


def record(position: int, name: str, partition: int | None = None, key: bytes | None = None) -> SpooledRecord:
    return SpooledRecord(position, name, partition, key, b"", 0, ())


def by_number(_: str, key: bytes) -> int:
    return int(key)


def run(readiness: ReadyPartitions, topics: dict[str, KnownTopic], records: list[SpooledRecord]) -> Run:
    return readiness.run(topics, records, by_number)


def test_a_run_ends_before_a_partition_without_a_leader() -> None:
    topics = topic("a", 1, 1) | topic("b", 1, -1)
    records = [record(0, "a", 1), record(1, "b", key=b"0"), record(2, "b", key=b"1"), record(3, "a", 0)]
    found = run(ReadyPartitions(random.choice), topics, records)
    assert found == Run([Placed(records[0], 1), Placed(records[1], 0)], ("b", 1))
    assert run(ReadyPartitions(random.choice), topics, records[2:]) == Run([], ("b", 1))


def test_records_without_a_key_wait_where_no_partition_has_a_leader() -> None:
    readiness = ReadyPartitions(random.choice)
    records = [record(0, "a", 9), record(1, "a")]
    assert run(readiness, topic("a", -1, 2), records) == Run(
        [Placed(records[0], 9), Placed(records[1], None)]
    ), "the producer says that there is no such partition, and chooses among those that have a leader"
    assert run(readiness, topic("a", -1, -1), records) == Run([Placed(records[0], 9)], ("a", ANY_PARTITION))


def test_partitions_that_were_late_and_others_are_kept_apart() -> None:
    readiness, topics = ReadyPartitions(random.choice), topic("a", 1, 1, 1)
    records = [record(number, "a", partition) for number, partition in enumerate((0, 1, 2, 2, 0, 2))]
    readiness.missed([("a", 2)])
    assert [placement.record for placement in run(readiness, topics, records).records] == records[:2]
    assert [placement.record for placement in run(readiness, topics, records[2:]).records] == records[2:4]
    readiness.took([("a", 2)])
    assert [placement.record for placement in run(readiness, topics, records).records] == records


@pytest.mark.parametrize("late", [[("a", 1)], [("a", 0), ("a", 1), ("a", 2)]])
def test_records_without_a_key_avoid_partitions_that_were_late(late: list[tuple[str, int]]) -> None:
    readiness = ReadyPartitions(random.choice)
    readiness.missed(late)
    found = run(readiness, topic("a", 1, 1, -1), [record(number, "a") for number in range(10)])
    partitions = {placement.partition for placement in found.records}
    assert len(found.records) == 10
    assert len(partitions) == 1, "they keep their order"
    assert partitions <= ({0, 1} if len(late) == 3 else {0})


def test_a_topic_that_is_not_known_and_a_partitioner_that_fails_are_left_to_the_producer() -> None:
    records = [record(0, "new"), record(1, "a", key=b"no number")]
    found = run(ReadyPartitions(random.choice), topic("a", 1), records)
    assert found == Run([Placed(spooled, None) for spooled in records])
