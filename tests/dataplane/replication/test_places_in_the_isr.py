"""Offers of places in the ISR to followers outside it, as soon as they may join."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from unittest import mock

from ottla.dataplane.replication.fetch_values import (
    FIRST_EPOCH,
    FetchPosition,
    FollowerFetch,
    SessionAnswer,
)
from ottla.dataplane.replication.replicas.replicas import Replicas
from ottla.protocol.cluster.cluster_image import ClusterImage
from ottla.protocol.messages.metadata_records import BrokerRecord, PartitionRecord, Record, TopicRecord

from .test_restarts import NEW_TOPIC, broker, fold

OTHER = 2


def other(*, fenced: bool) -> Record:
    return BrokerRecord(broker_id=OTHER, broker_epoch=1, incarnation=b"o" * 16, fenced=fenced)


def partition(index: int, partition_epoch: int, *isr: int) -> Record:
    return PartitionRecord(
        topic_id=NEW_TOPIC,
        partition=index,
        replicas=[1, OTHER],
        isr=list(isr),
        leader=1,
        partition_epoch=partition_epoch,
    )


class Cluster:
    """Broker 1, which leads two partitions, and its follower broker 2."""

    def __init__(self, replicas: Replicas, image: ClusterImage) -> None:
        self._replicas = replicas
        self._image = image
        self.offered = mock.Mock()
        replicas.sessions.offer = self.offered  # type: ignore[method-assign]
        self.tell(
            other(fenced=False),
            TopicRecord(topic_id=NEW_TOPIC, name="t"),
            partition(0, 0, 1, OTHER),
            partition(1, 0, 1, OTHER),
        )

    def tell(self, *records: Record) -> list[int]:
        """Apply records, and return the partitions of which broker 2 is offered a place."""
        self.offered.reset_mock()
        self._replicas.image_changed(self._image, fold(self._image, *records))
        self._replicas.check()
        calls = [call.args for call in self.offered.call_args_list]
        assert all(broker_id == OTHER for broker_id, _ in calls)
        return sorted(index for _, (_, index) in calls)


async def test_a_fenced_broker_is_offered_a_place_once_it_is_back(tmp_path: Path) -> None:
    image = ClusterImage()
    async with broker(tmp_path, image) as (_, replicas):
        cluster = Cluster(replicas, image)
        assert cluster.tell(other(fenced=True), partition(0, 1, 1)) == []
        assert cluster.tell(partition(1, 1, 1)) == []
        replicas.check_isr()
        assert cluster.tell(other(fenced=False), partition(1, 2, 1)) == [0, 1]


async def test_who_is_in_all_isrs_is_offered_nothing(tmp_path: Path) -> None:
    image = ClusterImage()
    async with broker(tmp_path, image) as (_, replicas):
        cluster = Cluster(replicas, image)
        assert cluster.tell(other(fenced=True)) == []
        assert cluster.tell(other(fenced=False)) == []
        assert cluster.tell(partition(0, 1, 1)) == [0]
        assert cluster.tell(partition(0, 2, 1, OTHER)) == []


# ---------------------------------------------------------------- fetches


class FetchingFollower:
    """Broker 2 as a follower of broker 1, in no ISR."""

    def __init__(self, replicas: Replicas, image: ClusterImage, partitions: int) -> None:
        self._replicas = replicas
        self._epoch = FIRST_EPOCH
        self._answers: list[SessionAnswer] = []
        self.tried = mock.Mock(wraps=replicas.follower_advanced)
        replicas.follower_advanced = self.tried  # type: ignore[method-assign]
        outside = [partition(index, 0, 1) for index in range(partitions)]
        records = other(fenced=False), TopicRecord(topic_id=NEW_TOPIC, name="t"), *outside
        replicas.image_changed(image, fold(image, *records))

    def fetch(self, indexes: Sequence[int] = (), *, waits: bool = False) -> list[int]:
        """Fetch these partitions, and return those whose ISR the follower tries to join."""
        self.tried.reset_mock()
        session_id = self._answers[-1].session_id if self._answers else 0
        positions = [FetchPosition((NEW_TOPIC, index), 0, 0, -1, 0, 1 << 20) for index in indexes]
        fetch = FollowerFetch(OTHER, 1, session_id, self._epoch, positions, (), 1 << 20)
        self._replicas.sessions.fetch(fetch, 60.0 if waits else 0.0, self._answers.append, 1)
        self._epoch += 1
        return [call.args[0].index for call in self.tried.call_args_list]


async def test_a_follower_outside_tries_once_to_join_and_not_with_each_fetch(tmp_path: Path) -> None:
    """Each fetch took a long turn of the leader's loop if thousands of proposals were waiting."""
    image = ClusterImage()
    async with broker(tmp_path, image) as (_, replicas):
        follower = FetchingFollower(replicas, image, 10)
        assert follower.fetch(range(4)) == [0, 1, 2, 3]
        assert follower.fetch(range(4, 10)) == [4, 5, 6, 7, 8, 9]
        assert follower.fetch() == []
        assert follower.fetch([7]) == [7]
        replicas.check()


async def test_a_place_offered_between_two_fetches_is_taken_with_the_next(tmp_path: Path) -> None:
    image = ClusterImage()
    async with broker(tmp_path, image) as (_, replicas):
        follower = FetchingFollower(replicas, image, 3)
        assert follower.fetch(range(3)) == [0, 1, 2]
        replicas.image_changed(image, fold(image, partition(1, 1, 1)))
        assert follower.fetch() == [1]
        assert follower.fetch(waits=True) == []
        replicas.image_changed(image, fold(image, partition(2, 1, 1)))
        assert [call.args[0].index for call in follower.tried.call_args_list] == [2]
        assert follower.fetch() == []
