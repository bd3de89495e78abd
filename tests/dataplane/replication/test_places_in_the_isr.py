"""Who is offered a place in the ISR, and when: followers that are outside, as soon as they may join."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

from ottla.dataplane.replication.replicas.replicas import Replicas
from ottla.protocol.cluster_image import ClusterImage
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
    """Broker 1 leads two partitions, which broker 2 follows."""

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
        """The partitions of which broker 2 is offered a place thereupon."""
        self.offered.reset_mock()
        self._replicas.apply(self._image, fold(self._image, *records))
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
