"""A client that sends requests that must be refused, as an unknown client, a zombie or a retry may send, and notes the
answers.

Requests go to the leader or coordinator that this client knows. It relies only on facts that a leader of that epoch, or
of an earlier one, has reported.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from random import Random

from ottla.client.connections.cluster import Cluster
from ottla.client.connections.connection import Connection
from ottla.client.records import TopicPartition
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from ottla.protocol.messages.producers import InitProducerIdRequest
from ottla.protocol.records.record import encode_batch
from tests.histories.operations import ALL_IN_SYNC, Deleted, History, Probe, ProducerIdentity, Send
from tests.simulation.cluster.group_members import COMMIT_VERSION, find_coordinator
from tests.simulation.cluster.workload import REQUEST_TIMEOUT_MS, Workload, started

TIMEOUT_MS = 700
BATCHES_REMEMBERED = 5
"""Number of batches that brokers remember of each producer."""
FAR_AHEAD = 1000
"""Number of leader epochs that no run reaches."""
LATEST = -1
BY_NAME = 12
"""Last version of Produce and Fetch that names topics."""
LIST_VERSION, EPOCH_END_VERSION = 7, 4
ORIGINAL = "the offset that it had"
ASK_AGAIN = ["NOT_LEADER_OR_FOLLOWER", "UNKNOWN_TOPIC_OR_PARTITION", "KAFKA_STORAGE_ERROR"]
"""Errors of a broker that no longer leads, or whose folder is broken; it has not checked the request further."""
NO_COORDINATOR = ["NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS"]
NOT_A_MEMBER = [
    "UNKNOWN_MEMBER_ID",
    "ILLEGAL_GENERATION",
    "FENCED_MEMBER_EPOCH",
    "STALE_MEMBER_EPOCH",
    "GROUP_ID_NOT_FOUND",
]
BEFORE_APPEND = ["NOT_ENOUGH_REPLICAS"]
AFTER_APPEND = ["REQUEST_TIMED_OUT"]
"""Errors after the append: the batch waits until the request times out if too few replicas are in sync."""
FATAL = frozenset(
    {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.UNKNOWN_PRODUCER_ID}
)
OF_A_BATCH = [
    "DUPLICATE_SEQUENCE_NUMBER",
    *ASK_AGAIN,
    *BEFORE_APPEND,
    *AFTER_APPEND,
    *sorted(code.name for code in FATAL),
    "INVALID_TIMESTAMP",
]
"""Errors that may answer the next batch of a producer; the last one occurs after a clock jump."""


@dataclass(frozen=True, slots=True)
class Batch:
    """An acknowledged batch."""

    sequence: int
    records: bytes
    offset: int


def refusals_of_a_duplicate(history: History, place: TopicPartition, batch: Batch) -> list[str]:
    """Return the errors that may answer a repeated batch. The batch is in the log, so errors that deny this are not
    allowed.

    Exception: its record was deleted, and the leader began after it. Such a leader knows only the producer's copied
    batches, and reports an out-of-order sequence, as in Kafka. A new batch after a later one is not treated so.
    """
    expected = ["DUPLICATE_SEQUENCE_NUMBER", *ASK_AGAIN, *AFTER_APPEND]
    deleted = (each for each in history if isinstance(each, Deleted))
    if any((each.topic, each.partition) == place and each.before_offset > batch.offset for each in deleted):
        expected += ["OUT_OF_ORDER_SEQUENCE_NUMBER", *BEFORE_APPEND]
    return expected


class Prober:
    """A client that sends probes of all kinds, one after the other."""

    def __init__(self, workload: Workload, name: str) -> None:
        self._workload, self._name = workload, name
        self._chance: Random = workload.chance()

    async def run(self) -> None:
        """Send probes until the workload is over."""
        workload, chance = self._workload, self._chance
        cluster = self._cluster = await started(
            lambda: Cluster(workload.cluster.bootstrap, request_timeout_ms=REQUEST_TIMEOUT_MS)
        )
        cluster.follow(self, workload.topics)
        unjudged = {*workload.copies, *workload.lossy, *workload.trimmed, *workload.compacted}
        places = [partition for partition in workload.partitions if partition.topic not in unjudged]
        producer = Producer(workload, cluster, self._name, chance.choice(places))
        while not workload.over:
            with suppress(KafkaError):
                turn = chance.random()
                if turn < 0.6:
                    await self._probe_producer(producer)
                elif turn < 0.8 or not workload.memberships:
                    await self._probe_epochs(chance.choice(workload.partitions))
                else:
                    await self._probe_group()
                await asyncio.sleep(chance.uniform(0.02, 0.2))
                continue
            await asyncio.sleep(0.05)
            with suppress(KafkaError):
                await cluster.refresh()
        await cluster.close()

    def _note(self, what: str, expected: list[str], code: int) -> None:
        got = ErrorCode(code).name if code else None
        self._workload.history.add(Probe(self._name, what, expected, got, self._workload.now()))

    # ------------------------------------------------------------ producers

    async def _probe_producer(self, producer: Producer) -> None:
        chance = self._chance
        await producer.produce(too_few_in_sync=self._send_again)
        if not producer.acknowledged:
            return
        if chance.random() < 0.5:
            await self._send_again(producer)
        if chance.random() < 0.3:
            answer = await producer.send(producer.refusable(b"gap", gap=chance.choice((1, 2, 100))))
            expected = ["OUT_OF_ORDER_SEQUENCE_NUMBER", *ASK_AGAIN, *BEFORE_APPEND]
            self._note("a gap in the sequence", expected, answer.error_code)
        if producer.epoch and chance.random() < 0.3:
            answer = await producer.send(producer.refusable(b"old", epoch=producer.epoch - 1))
            expected = ["INVALID_PRODUCER_EPOCH", *ASK_AGAIN, *BEFORE_APPEND]
            self._note("an old producer epoch", expected, answer.error_code)
        if chance.random() < 0.15:
            producer.next_epoch()

    async def _send_again(self, producer: Producer) -> None:
        """Send an acknowledged batch again, if there is one."""
        if not producer.acknowledged:
            return
        batch = self._chance.choice(producer.acknowledged)
        answer = await producer.send(batch.records)
        if answer.error_code:
            expected = refusals_of_a_duplicate(self._workload.history, producer.place, batch)
            self._note("a batch sent again", [*expected, ORIGINAL], answer.error_code)
        else:
            got = ORIGINAL if answer.base_offset == batch.offset else f"offset {answer.base_offset}"
            probe = Probe(self._name, "a batch sent again", [ORIGINAL], got, self._workload.now())
            self._workload.history.add(probe)

    # ------------------------------------------------------------ leader epochs

    async def _probe_epochs(self, place: TopicPartition) -> None:
        """Probe the epochs of a leader that has answered in its own epoch, so it is in this epoch or a later one."""
        info = self._cluster.metadata.partition(*place)
        if info is None or info.leader < 0:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE)
        connection = await self._cluster.connection(info.leader, "probe")
        epoch = info.leader_epoch
        if code := await _list_offsets(connection, place, epoch):
            raise KafkaError(ErrorCode(code))
        for name, ask in _ASKING.items():
            if epoch > 0:
                code = await ask(connection, place, self._chance.randrange(epoch))
                self._note(f"{name}, old leader epoch", ["FENCED_LEADER_EPOCH", *ASK_AGAIN], code)
            code = await ask(connection, place, epoch + FAR_AHEAD)
            self._note(f"{name}, future leader epoch", ["UNKNOWN_LEADER_EPOCH", *ASK_AGAIN], code)

    # ------------------------------------------------------------ groups

    async def _probe_group(self) -> None:
        """Commit as an unknown member, and as former members, for a partition that no member of these groups owns."""
        chance, memberships = self._chance, self._workload.memberships
        latest = {member: (group, generation) for group, member, generation in memberships}
        past = [each for each in memberships if 0 < each[2] < latest[each[1]][1]]
        if past and chance.random() < 0.6:
            await self._probe_commit("a commit of a generation before", *chance.choice(past))
            return
        member = chance.choice(list(latest))
        group, generation = latest[member]
        if chance.random() < 0.5:
            await self._probe_commit("a commit by a stranger", group, "nobody", generation)
        else:
            ahead = generation + FAR_AHEAD
            await self._probe_commit("a commit of a generation to come", group, member, ahead)

    async def _probe_commit(self, what: str, group: str, member: str, generation: int) -> None:
        coordinator = await find_coordinator(self._cluster, group)
        connection = await self._cluster.connection(coordinator, "probe")
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=0)
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member,
            topics=[OffsetCommitRequestTopic(name="events", partitions=[partition])],
        )
        answer = await connection.request(request, version=COMMIT_VERSION, timeout_ms=TIMEOUT_MS)
        code = answer.topics[0].partitions[0].error_code
        self._note(what, [*NOT_A_MEMBER, *NO_COORDINATOR], code)


class Producer:
    """A hand-written idempotent producer: one record in one batch at a time, sent until its outcome is known."""

    def __init__(self, workload: Workload, cluster: Cluster, name: str, place: TopicPartition) -> None:
        self.epoch = 0
        self.acknowledged: deque[Batch] = deque(maxlen=BATCHES_REMEMBERED)
        """Acknowledged batches of this epoch."""
        self._workload, self._cluster, self._name = workload, cluster, name
        self.place = place
        self._id: int | None = None
        self._incarnation = self._sequence = self._sent = 0

    def next_epoch(self) -> None:
        """Raise the epoch, as clients do once all outcomes are known (KIP-360)."""
        self.epoch += 1
        self._sequence = 0
        self.acknowledged.clear()

    def refusable(self, value: bytes, *, gap: int = 0, epoch: int | None = None) -> bytes:
        """Return a batch that was never sent before."""
        self._sent += 1
        value = b"%s:%s:%d" % (self._name.encode(), value, self._sent)
        return self._encoded(value, self._sequence + gap, self.epoch if epoch is None else epoch)

    async def produce(self, too_few_in_sync: Callable[[Producer], Awaitable[None]]) -> None:
        """Send one more record; call `too_few_in_sync` whenever too few replicas are in sync.

        Raises KafkaError if no producer id is available.
        """
        workload = self._workload
        if self._id is None:
            await self._begin()
        value = b"%s:%d" % (self._name.encode(), self._sent)
        records = self._encoded(value, self._sequence, self.epoch)
        actor = f"{self._name}/{self._incarnation}"
        send = Send(actor, actor, *self.place, value, ALL_IN_SYNC, True, self._sent, workload.now())
        self._sent += 1
        workload.history.add(send)
        attempts = 0
        while True:
            attempts += 1
            with suppress(KafkaError):
                answer = await self.send(records)
                code = ErrorCode(answer.error_code)
                if code:
                    workload.history.add(Probe(actor, "a batch", OF_A_BATCH, code.name, workload.now()))
                if not code or code in FATAL or code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                    break
                if code is ErrorCode.NOT_ENOUGH_REPLICAS:
                    await too_few_in_sync(self)
            await asyncio.sleep(0.03)
            with suppress(KafkaError):
                await self._cluster.refresh()
        send.finish(workload.now(), code.name, offset=answer.base_offset, tried_before=attempts > 1)
        if code in FATAL:
            self._id = None
        else:
            if not code:
                self.acknowledged.append(Batch(self._sequence, records, answer.base_offset))
            self._sequence += 1

    async def send(self, records: bytes) -> PartitionProduceResponse:
        """Attempt to send once. Raises KafkaError without an answer."""
        leader = self._cluster.metadata.leader(*self.place)
        if leader is None:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE)
        data = PartitionProduceData(index=self.place.partition, records=records)
        request = ProduceRequest(
            acks=ALL_IN_SYNC,
            timeout_ms=TIMEOUT_MS // 2,
            topic_data=[TopicProduceData(name=self.place.topic, partition_data=[data])],
        )
        connection = await self._cluster.connection(leader, "produce")
        answer = await connection.request(request, version=BY_NAME, timeout_ms=TIMEOUT_MS)
        return answer.responses[0].partition_responses[0]

    async def _begin(self) -> None:
        connection = await self._cluster.any_connection()
        given = await connection.request(InitProducerIdRequest(transactional_id=None), timeout_ms=TIMEOUT_MS)
        if given.error_code:
            raise KafkaError(ErrorCode(given.error_code))
        self._incarnation += 1
        self._id, self.epoch, self._sequence = given.producer_id, given.producer_epoch, 0
        self.acknowledged.clear()
        actor = f"{self._name}/{self._incarnation}"
        self._workload.history.add(ProducerIdentity(actor, self._id, self.epoch, self._workload.now()))

    def _encoded(self, value: bytes, sequence: int, epoch: int) -> bytes:
        assert self._id is not None
        record = (None, value, int(time.time() * 1000))
        return encode_batch([record], producer_id=self._id, producer_epoch=epoch, base_sequence=sequence)


async def _list_offsets(connection: Connection, place: TopicPartition, epoch: int) -> int:
    part = ListOffsetsPartition(partition_index=place.partition, current_leader_epoch=epoch, timestamp=LATEST)
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=place.topic, partitions=[part])]
    )
    answer = await connection.request(request, version=LIST_VERSION, timeout_ms=TIMEOUT_MS)
    return answer.topics[0].partitions[0].error_code


async def _fetch(connection: Connection, place: TopicPartition, epoch: int) -> int:
    part = FetchPartition(
        partition=place.partition, current_leader_epoch=epoch, fetch_offset=0, partition_max_bytes=1
    )
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1,
        session_id=0,
        session_epoch=-1,
        topics=[FetchTopic(topic=place.topic, partitions=[part])],
    )
    answer = await connection.request(request, version=BY_NAME, timeout_ms=TIMEOUT_MS)
    return answer.error_code or answer.responses[0].partitions[0].error_code


async def _end_of_epoch(connection: Connection, place: TopicPartition, epoch: int) -> int:
    part = OffsetForLeaderPartition(partition=place.partition, current_leader_epoch=epoch, leader_epoch=0)
    request = OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[OffsetForLeaderTopic(topic=place.topic, partitions=[part])]
    )
    answer = await connection.request(request, version=EPOCH_END_VERSION, timeout_ms=TIMEOUT_MS)
    return answer.topics[0].partitions[0].error_code


_ASKING = {"a fetch": _fetch, "a look at offsets": _list_offsets, "a look at an epoch's end": _end_of_epoch}
