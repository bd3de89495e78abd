"""Broker 1 with real logs and replicas, and its part in transactions, beside the controller's real state machine.

The controller's decisions reach the broker when the test, or a command of the broker, delivers the feed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from ottla.dataplane.cluster.internal_topics import OFFSETS_TOPIC
from ottla.dataplane.coordinated_log.replicated_log import ReplicatedLog
from ottla.dataplane.groups.coordinator import GroupCoordinator
from ottla.dataplane.groups.limits import GroupLimits
from ottla.dataplane.quorum.image_follower import Fold, ImageFollower
from ottla.dataplane.quorum.shared_catch_up import SharedCatchUp
from ottla.dataplane.replication.replica.partition import Partition
from ottla.dataplane.replication.replicas.replicas import Replicas
from ottla.dataplane.transactions.completion_waits import CompletionWaits
from ottla.dataplane.transactions.markers import Markers
from ottla.dataplane.transactions.pending_writes import Adding, PendingTransactionWrites
from ottla.metadata_quorum.state.controller import Applied
from ottla.protocol.cluster.image_delta import ImageDelta
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages import quorum_commands as q
from ottla.protocol.messages.command import Command, ResultT, accepted
from ottla.protocol.messages.quorum_session import FeedRecords
from ottla.protocol.records.record import encode_batch
from tests.dataplane.replication.test_restarts import broker
from tests.metadata_quorum.state.harness import assigned
from tests.metadata_quorum.state.transactional import Identity, Transactions, push


class Quorum(Transactions):
    """The controller, and the feed that broker 1 has not received yet."""

    def __init__(self) -> None:
        self.untold: list[FeedRecords] = []
        #: a quorum without a leader answers nothing
        self.answers = True
        super().__init__(partitions=0)
        self.create(assigned("solo", [1], [1]), assigned("pair", [1, 2]))

    def apply(self, command: Command[Any], session: q.Session | None = None) -> Applied:
        offset = self.machine.image.offset
        applied = super().apply(command, session)
        self.untold.append(push(1, offset, applied))
        return applied


class Beside:
    """The broker."""

    def __init__(self, quorum: Quorum, replicas: Replicas, follower: ImageFollower) -> None:
        self.quorum, self.replicas = quorum, replicas
        self.image = image = follower.image
        self._follower = follower
        self.pending_writes = PendingTransactionWrites(
            lambda: image.transactions, self, SharedCatchUp(1, self), lambda: 7
        )
        # : notifications to groups: partition, producer id, end offset, whether it was committed
        self.ended: list[tuple[int, int, int, bool]] = []
        self.markers = Markers(1, replicas, lambda: image, self, {OFFSETS_TOPIC: self.offsets_ended})
        self.completion_waits = CompletionWaits(lambda: image)
        self.groups = GroupCoordinator(
            GroupLimits(), lambda: 0, self._offsets_partitions, lambda: image.topics
        )
        #: called whenever the image has moved
        self.moved: Callable[[], None] = lambda: None
        replicas.listen(self)

    # The session with the quorum

    @property
    def broker_epoch(self) -> int:
        return self.quorum.epoch(1)

    async def submit(self, command: Command[ResultT], timeout_ms: int | None = None) -> ResultT:
        await asyncio.sleep(0)
        if not self.quorum.answers:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
        applied = self.quorum.apply(command)
        self.catch_up()
        return accepted(q.decode_result(command, applied.result))

    def catch_up(self) -> None:
        """Deliver the pending feed."""
        untold = self.quorum.untold
        delta = self._follower.records(
            FeedRecords(
                first_offset=self.image.offset,
                end_offset=untold[-1].end_offset if untold else self.image.offset,
                records=[record for each in untold for record in each.records],
            )
        )
        untold.clear()
        if isinstance(delta, Fold):
            delta = ImageDelta()
        self.replicas.image_changed(self.image, delta)
        self.markers.image_changed(delta.transactions)
        self.pending_writes.image_changed()
        self.completion_waits.image_changed(delta.transactions, leaders_changed=bool(delta.partitions))
        self.groups.image_changed(self.image, delta)
        self.moved()

    def elected(self, partition: Partition) -> None:
        if partition.topic == OFFSETS_TOPIC:
            self.groups.elected(partition.index, ReplicatedLog(partition))
        self.markers.elected(partition)

    def resigned(self, topic: str, index: int) -> None:
        if topic == OFFSETS_TOPIC:
            self.groups.resigned(index)

    def _offsets_partitions(self) -> int | None:
        topic = self.image.topics.get(OFFSETS_TOPIC)
        return None if topic is None else len(topic.partitions)

    def offsets_ended(self, partition: int, producer_id: int, end_offset: int, *, committed: bool) -> None:
        self.ended.append((partition, producer_id, end_offset, committed))
        self.groups.transaction_ended(partition, producer_id, end_offset, committed=committed)

    # Actions of a test

    def partition(self, topic: str = "solo", index: int = 0) -> Partition:
        return self.replicas.get(topic, index)

    async def produce(
        self, who: Identity, sequence: int, *, topic: str = "solo", index: int = 0, adds: str | None = None
    ) -> int:
        """Produce a transactional batch, and return its offset. Raises KafkaError if it is refused."""
        partition = self.partition(topic, index)
        producer_id, epoch = who
        records = memoryview(
            bytearray(
                encode_batch(
                    [(None, b"%d" % sequence, 0)],
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    base_sequence=sequence,
                    transactional=True,
                )
            )
        )
        has = partition.log.produced.has(records)
        if not has and self.pending_writes.admits(partition, producer_id, epoch):
            return partition.append(records, required_acks=-1).first_offset
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def released(error: KafkaError | None) -> None:
            try:
                if error is not None:
                    raise error
                done.set_result(partition.append(records, required_acks=-1).first_offset)
            except KafkaError as refused:
                done.set_exception(refused)

        adding = None if adds is None else Adding(adds)
        self.pending_writes.wait(partition, producer_id, epoch, adding, released, is_duplicate=has)
        return await done

    def solo(self, *indexes: int) -> set[tuple[bytes, int]]:
        return self.quorum.places(*indexes, topic="solo")


@contextlib.asynccontextmanager
async def beside_a_quorum(directory: Path) -> AsyncIterator[Beside]:
    """Run the broker with its logs in `directory`; a restart needs another quorum."""
    quorum, follower = Quorum(), ImageFollower(1)
    async with broker(directory, follower.image) as (_, replicas):
        beside = Beside(quorum, replicas, follower)
        beside.catch_up()
        try:
            yield beside
        finally:
            beside.pending_writes.close()
            beside.markers.close()
            beside.groups.close()
            await asyncio.sleep(0)
