"""Sends the steps of a conversation to a broker, and returns its answers as plain values that JSON can store."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import singledispatchmethod
from typing import Any

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.share_fetch import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
)
from ottla.protocol.messages.share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequest,
    NewOffset,
    NewTopicOffsets,
    UnwantedTopic,
    WantedGroup,
    WantedTopic,
)
from ottla.protocol.messages.share_groups import JOIN_EPOCH, LEAVE_EPOCH, ShareGroupHeartbeatRequest
from ottla.protocol.records.record import encode_batch
from ottla.protocol.records.record_batch import walk_batches
from tests.cluster import wait_for
from tests.integration.raw_transactions import RawTransactions, Who
from tests.raw_peer import Peer

from .steps import (
    Acknowledge,
    Alter,
    Configure,
    DeleteOffsets,
    Fetch,
    HangUp,
    Leave,
    Offsets,
    Pause,
    Produce,
    Range,
    Renew,
    Script,
    Trim,
)

UNKNOWN_TOPIC = b"\x01" * 16
SETTINGS = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.heartbeat.interval.ms": "500",
}
"""Settings of the broker."""
_JOINED = str(uuid.UUID(int=1))
_SETTLED_S = 0.6

AT_ONCE = 12

Answer = Any


def play_together(bootstrap: str, scripts: Sequence[Script]) -> dict[str, list[Answer]]:
    """Play conversations beside each other, since most of their time is waiting. Return the answers by name."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        played = pool.map(lambda script: Conversation(bootstrap, script).answers(), scripts)
        return {script.name: answers for script, answers in zip(scripts, played, strict=True)}


class Conversation:
    """One conversation with a broker, about a new group and a new topic."""

    def __init__(self, bootstrap: str, script: Script) -> None:
        self._bootstrap, self._script = bootstrap, script
        self._port = int(bootstrap.split(",")[0].rpartition(":")[2])
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self._peer = Peer(self._port)
        self._members: dict[str, Peer] = {}
        self._epochs: dict[str, int] = {}
        self._group = self._topic = f"c-{uuid.uuid4().hex[:12]}"
        self._member_epoch = JOIN_EPOCH
        self._topic_id = b""

    def answers(self) -> list[Answer]:
        """Play the script. Return an answer for each step, null for a step that is not compared."""
        try:
            self._create()
            self._configure({"share.auto.offset.reset": "earliest"} | self._script.settings)
            self._join()
            return [self._play(step) for step in self._script.steps]
        finally:
            for peer in (self._peer, *self._members.values()):
                peer.close()

    # ------------------------------------------------------------ surroundings

    def _create(self) -> None:
        for made in self._admin.create_topics([NewTopic(self._topic, 1, 1)]).values():
            made.result(30)
        self._topic_id = wait_for(self._known_topic, "the topic")

    def _known_topic(self) -> bytes | None:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=self._topic)])
        (topic,) = self._peer.ask(request, 12).topics
        is_led = not topic.error_code and topic.partitions and topic.partitions[0].leader_id >= 0
        return bytes(topic.topic_id) if is_led and bytes(topic.topic_id) != self._topic_id else None

    def _configure(self, settings: dict[str, str]) -> None:
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in settings.items()
        ]
        resource = ConfigResource(ResourceType.GROUP, self._group, incremental_configs=entries)
        for future in self._admin.incremental_alter_configs([resource]).values():
            future.result(30)
        time.sleep(0.2)

    def _join(self) -> None:
        """Have the group initialize its state for the topic, and wait until the member has the partition."""

        def assigned() -> bool | None:
            # Kafka creates the topic of groups at the first question.
            self._peer.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[self._group]), 4)
            answer = self._heartbeat(self._member_epoch)
            if answer.error_code:
                return None
            self._member_epoch = answer.member_epoch
            found = answer.assignment.topic_partitions if answer.assignment else []
            return True if any(bytes(topic.topic_id) == self._topic_id for topic in found) else None

        wait_for(assigned, "an assignment", 30)

    def _heartbeat(self, epoch: int) -> Any:
        request = ShareGroupHeartbeatRequest(
            group_id=self._group,
            member_id=_JOINED,
            member_epoch=epoch,
            subscribed_topic_names=[self._topic] if epoch >= 0 else None,
        )
        return self._peer.ask(request, 1)

    def _member(self, name: str) -> tuple[Peer, str]:
        if name not in self._members:
            self._members[name] = Peer(self._port)
        return self._members[name], str(uuid.uuid5(uuid.NAMESPACE_OID, name)) if name else ""

    def _epoch(self, name: str, epoch: int | None) -> int:
        return self._epochs.get(name, 0) if epoch is None else epoch

    def _advance(self, name: str, epoch: int, error: int) -> None:
        """Note the next epoch of a member, as a client would."""
        if not error:
            self._epochs[name] = 0 if epoch < 0 else epoch + 1

    # ------------------------------------------------------------ steps

    @singledispatchmethod
    def _play(self, step: object) -> Answer:
        raise TypeError(f"there is no step {step!r}")

    @_play.register
    def _(self, step: Produce) -> Answer:
        if step.ending:
            return self._transaction(step)
        for _ in range(step.batches):
            records = encode_batch(_records(step.count))
            data = PartitionProduceData(index=0, records=records)
            topic = TopicProduceData(name=self._topic, partition_data=[data])
            request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])
            (made,) = self._peer.ask(request, 9).responses[0].partition_responses
            assert not made.error_code, ErrorCode(made.error_code)
        return None

    def _transaction(self, step: Produce) -> Answer:
        with RawTransactions(self._bootstrap) as raw:
            who = self._producer(raw)
            raw.add(who, self._topic, [0])
            batch = encode_batch(
                _records(step.count),
                producer_id=who.producer_id,
                producer_epoch=who.epoch,
                base_sequence=0,
                transactional=True,
            )
            assert raw.produce_batch(who.transactional_id, self._topic, 0, batch) is ErrorCode.NONE
            assert raw.end(who, commit=step.ending == "commit").code is ErrorCode.NONE
        # A second transaction of the id begins once the marker of the first is written.
        time.sleep(0.2)
        return None

    def _producer(self, raw: RawTransactions) -> Who:
        """Return a new transactional producer. Kafka's coordinator may still be loading."""
        named = Who(f"{self._topic}-{uuid.uuid4().hex[:6]}")

        def ask() -> Who | None:
            answer = raw.try_init(named)
            return answer.who if answer.code is ErrorCode.NONE else None

        return wait_for(ask, "a producer id")

    @_play.register
    def _(self, step: Fetch) -> Answer:
        peer, member_id = self._member(step.member)
        epoch = self._epoch(step.member, step.epoch)
        named = step.partitions
        if named is None:
            named = (0,) if epoch == 0 or step.ranges else ()
        topic_id = UNKNOWN_TOPIC if step.unknown_topic else self._topic_id
        partitions = [
            FetchPartition(partition_index=index, acknowledgement_batches=_batches(step.ranges))
            for index in named
        ]
        request = ShareFetchRequest(
            group_id=self._group,
            member_id=member_id,
            share_session_epoch=epoch,
            max_wait_ms=step.wait_ms,
            min_bytes=step.min_bytes,
            max_bytes=step.max_bytes,
            max_records=step.max_records,
            batch_size=10_000,
            share_acquire_mode=step.mode,
            is_renew_ack=step.renews,
            topics=[FetchTopic(topic_id=topic_id, partitions=partitions)] if partitions else [],
            forgotten_topics_data=[ForgottenTopic(topic_id=self._topic_id, partitions=list(step.forgotten))]
            if step.forgotten
            else [],
        )
        response = peer.ask(request, step.version, 30)
        self._advance(step.member, epoch, response.error_code)
        return _answer(
            response, [self._fetched(row) for topic in response.responses for row in topic.partitions]
        )

    def _fetched(self, row: Any) -> Answer:
        ranges: list[list[int]] = []
        for found in row.acquired_records:
            if ranges and ranges[-1][1] + 1 == found.first_offset and ranges[-1][2] == found.delivery_count:
                ranges[-1][1] = found.last_offset
            else:
                ranges.append([found.first_offset, found.last_offset, found.delivery_count])
        if ranges:
            headers = [header for _, header in walk_batches(bytes(row.records))]
            first, last = headers[0].base_offset, headers[-1].last_offset
            assert first <= ranges[0][0] <= ranges[-1][1] <= last, "the answer lacks acquired records"
        return {
            "partition": row.partition_index,
            "error": ErrorCode(row.error_code).name,
            "acknowledged": ErrorCode(row.acknowledge_error_code).name,
            "acquired": ranges,
        }

    @_play.register
    def _(self, step: Acknowledge) -> Answer:
        peer, member_id = self._member(step.member)
        epoch = self._epoch(step.member, step.epoch)
        topic_id = UNKNOWN_TOPIC if step.unknown_topic else self._topic_id
        partition = AcknowledgePartition(
            partition_index=step.partition, acknowledgement_batches=_batches(step.ranges)
        )
        request = ShareAcknowledgeRequest(
            group_id=self._group,
            member_id=member_id,
            share_session_epoch=epoch,
            is_renew_ack=step.renews,
            topics=[AcknowledgeTopic(topic_id=topic_id, partitions=[partition])] if step.ranges else [],
        )
        response = peer.ask(request, step.version, 30)
        self._advance(step.member, epoch, response.error_code)
        rows = [
            {"partition": row.partition_index, "acknowledged": ErrorCode(row.error_code).name}
            for topic in response.responses
            for row in topic.partitions
        ]
        return _answer(response, rows)

    @_play.register
    def _(self, step: Pause) -> Answer:
        time.sleep(step.seconds)

    @_play.register
    def _(self, step: Configure) -> Answer:
        self._configure({step.name: step.value})

    @_play.register
    def _(self, step: Trim) -> Answer:
        partition = DeleteRecordsPartition(partition_index=0, offset=step.offset)
        topic = DeleteRecordsTopic(name=self._topic, partitions=[partition])
        (row,) = (
            self._peer.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=30_000), 2).topics[0].partitions
        )
        assert not row.error_code, ErrorCode(row.error_code)

    @_play.register
    def _(self, step: Leave) -> Answer:
        self._heartbeat(LEAVE_EPOCH)
        self._member_epoch = JOIN_EPOCH

    @_play.register
    def _(self, step: Alter) -> Answer:
        offset = NewOffset(partition_index=0, start_offset=step.offset)
        topic = NewTopicOffsets(topic_name=self._topic, partitions=[offset])
        response = self._peer.ask(AlterShareGroupOffsetsRequest(group_id=self._group, topics=[topic]), 0)
        rows = [ErrorCode(row.error_code).name for topic in response.responses for row in topic.partitions]
        return {"error": ErrorCode(response.error_code).name, "rows": rows}

    @_play.register
    def _(self, step: DeleteOffsets) -> Answer:
        request = DeleteShareGroupOffsetsRequest(
            group_id=self._group, topics=[UnwantedTopic(topic_name=self._topic)]
        )
        response = self._peer.ask(request, 0)
        rows = [ErrorCode(topic.error_code).name for topic in response.responses]
        return {"error": ErrorCode(response.error_code).name, "rows": rows}

    @_play.register
    def _(self, step: Renew) -> Answer:
        for gone in self._admin.delete_topics([self._topic]).values():
            gone.result(30)
        time.sleep(_SETTLED_S)
        self._create()
        self._join()

    @_play.register
    def _(self, step: HangUp) -> Answer:
        self._members.pop(step.member).close()
        self._epochs.pop(step.member, None)

    @_play.register
    def _(self, step: Offsets) -> Answer:
        """Ask until the answer has stayed for a while, since a broker may write after it has answered."""
        last, since = self._offsets(), time.monotonic()
        while time.monotonic() - since < _SETTLED_S:
            time.sleep(0.05)
            if (now := self._offsets()) != last:
                last, since = now, time.monotonic()
        return last

    def _offsets(self) -> Answer:
        wanted = WantedGroup(
            group_id=self._group, topics=[WantedTopic(topic_name=self._topic, partitions=[0])]
        )
        (group,) = self._peer.ask(DescribeShareGroupOffsetsRequest(groups=[wanted]), 1).groups
        rows = [[row.start_offset, row.lag] for topic in group.topics for row in topic.partitions]
        return {"error": ErrorCode(group.error_code).name, "start and lag": rows}


def _records(count: int) -> list[tuple[bytes | None, bytes, int]]:
    """Return records of the present, since old records would begin a segment."""
    return [(None, b"v", int(time.time() * 1000))] * count


def _batches(ranges: Iterable[Range]) -> list[AcknowledgementBatch]:
    return [
        AcknowledgementBatch(
            first_offset=first,
            last_offset=last,
            acknowledge_types=[types] if isinstance(types, int) else list(types),
        )
        for first, last, types in ranges
    ]


def _answer(response: Any, rows: list[Answer]) -> Answer:
    return {
        "error": ErrorCode(response.error_code).name,
        "rows": sorted(rows, key=lambda row: int(row["partition"])),
    }
