"""The times at which a follower of several partitions hears of their new high watermarks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from ottla.dataplane.replication.fetch_values import (
    FIRST_EPOCH,
    FetchPosition,
    FollowerFetch,
    PartitionKey,
    SessionAnswer,
)
from ottla.dataplane.replication.leader.follower_session import (
    READ_WATERMARK_DELAY_S,
    WATERMARK_DELAY_S,
    FollowerSession,
)
from ottla.dataplane.replication.replica.partition import Partition
from ottla.dataplane.replication.throttle import Throttle

from .harness import TOPIC_ID, ReplicasByHand, Scheduler, over_the_wire

LEADER, FOLLOWER = 1, 2


class Followed:
    """Broker 1 as the leader of two partitions, each in a separate cluster."""

    def __init__(self, clusters: Sequence[ReplicasByHand]) -> None:
        self._clusters = clusters

    def get_by_id(self, topic_id: bytes, index: int) -> Partition:
        return self._clusters[index][LEADER].partition

    def is_to_be_made(self, key: PartitionKey) -> bool:
        return False

    def broker_epoch_of(self, broker_id: int) -> int:
        return self._clusters[0][LEADER].broker_epoch_of(broker_id)

    def doubted(self, partition: Partition, offset: int, max_bytes: int) -> None:
        raise AssertionError(f"records at {offset} of {partition!r} are doubted")

    def follower_advanced(self, partition: Partition, broker_id: int) -> None:
        raise AssertionError(f"broker {broker_id} is in the ISR of {partition!r}")


class TwoPartitions:
    """A leader's session with a follower that fetches by hand."""

    def __init__(self, folder: Path, delay_s: float) -> None:
        self._clusters = [ReplicasByHand(folder / name, brokers=(LEADER, FOLLOWER)) for name in ("a", "b")]
        for cluster in self._clusters:
            cluster.elect(LEADER)
        followed = Followed(self._clusters)
        self.scheduler = Scheduler(self._clusters[0])
        self._broker_epoch = followed.broker_epoch_of(FOLLOWER)
        self._session = FollowerSession(
            7,
            FOLLOWER,
            self._broker_epoch,
            followed,
            self.scheduler,
            Throttle(self.scheduler.time),
            delay_s,
            1,
        )
        self._session_epoch = FIRST_EPOCH
        self.answers: list[SessionAnswer] = []
        self.ask({0: 0, 1: 0})
        self.answers.clear()

    def ask(self, offsets: dict[int, int]) -> None:
        """Send the follower's next request, with new offsets in these partitions."""
        positions = [FetchPosition((TOPIC_ID, n), 1, offset, 1, 0, 1 << 20) for n, offset in offsets.items()]
        fetch = FollowerFetch(FOLLOWER, self._broker_epoch, 7, self._session_epoch, positions, (), 1 << 20)
        self._session.fetch(fetch, 0.5, lambda answer: self.answers.append(over_the_wire(answer)))
        self.scheduler.turn()
        self._session_epoch += 1

    def produce(self, index: int) -> None:
        """Append one more record to this partition."""
        self._clusters[index][LEADER].produce(b"value")
        self.scheduler.turn()

    def take(self) -> dict[int, tuple[bool, int]]:
        """Return, of the only answer since the last call, whether each partition has records, and
        its high watermark.
        """
        (answer,) = self.answers
        self.answers.clear()
        return {part.key[1]: (part.records is not None, part.high_watermark) for part in answer.partitions}


@pytest.fixture
def two(tmp_path: Path) -> TwoPartitions:
    """Return a session with a committed record of partition 0 that the follower does not know yet; its request is
    parked.
    """
    return with_a_moved_watermark(tmp_path, WATERMARK_DELAY_S)


def with_a_moved_watermark(folder: Path, delay_s: float) -> TwoPartitions:
    two = TwoPartitions(folder, delay_s)
    two.ask({0: 0, 1: 0})
    two.produce(0)
    assert two.take() == {0: (True, 0)}
    two.ask({0: 1})
    assert two.answers == []
    return two


def test_records_of_one_partition_leave_without_the_watermark_of_another(two: TwoPartitions) -> None:
    """An answer with the watermark costs both brokers as much as one with records."""
    two.produce(1)
    assert two.take() == {1: (True, 0)}
    two.ask({1: 1})
    two.scheduler.fire_timers()
    assert two.take() == {0: (False, 1), 1: (False, 1)}


def test_records_of_its_own_partition_take_a_watermark_along(two: TwoPartitions) -> None:
    two.produce(0)
    assert two.take() == {0: (True, 1)}


def test_a_watermark_whose_time_came_while_nobody_asked_is_told_with_the_next_records(
    two: TwoPartitions,
) -> None:
    two.produce(1)
    two.take()
    two.scheduler.fire_timers()
    assert two.answers == [], "nothing is parked"
    two.produce(1)
    two.ask({1: 1})
    assert two.take() == {0: (False, 1), 1: (True, 1)}


def test_a_follower_that_always_finds_records_hears_of_a_watermark_in_time(two: TwoPartitions) -> None:
    """This happens while a follower catches up, or while a partition is busy: none of its requests is parked then."""
    two.produce(1)
    two.take()
    two.scheduler.fire_timers()
    two.produce(1)
    two.ask({1: 1})
    assert two.take() == {0: (False, 1), 1: (True, 1)}
    two.produce(0)
    two.ask({1: 2})
    assert two.take() == {0: (True, 1)}
    two.produce(1)
    two.ask({0: 2})
    assert two.take() == {1: (True, 2)}, "that of partition 0 waits for its time"

    two.scheduler.fire_timers()
    two.produce(1)
    two.ask({1: 3})
    assert two.take() == {0: (False, 2), 1: (True, 3)}


def test_any_answer_tells_all_watermarks_where_consumers_read_from_followers(tmp_path: Path) -> None:
    two = with_a_moved_watermark(tmp_path, READ_WATERMARK_DELAY_S)
    two.produce(1)
    assert two.take() == {0: (False, 1), 1: (True, 0)}
