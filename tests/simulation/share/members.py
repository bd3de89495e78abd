"""Members of a share group: they take records from the leaders of their partitions, and acknowledge most of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple
from uuid import UUID

from ottla.client.connections.cluster import Cluster
from ottla.client.connections.connection import Connection
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.share_fetch import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
    ShareFetchResponse,
)
from ottla.protocol.messages.share_groups import JOIN_EPOCH, LEAVE_EPOCH, ShareGroupHeartbeatRequest
from ottla.protocol.records.record_batch import walk_batches
from tests.histories.invariants import InvariantBroken
from tests.histories.operations import Commit, Send
from tests.simulation.cluster.group_members import find_coordinator
from tests.simulation.cluster.workload import REQUEST_TIMEOUT_MS, Workload, started

from .deliveries import (
    ACCEPT,
    FINAL,
    GAP,
    REJECT,
    RELEASE,
    Acknowledgement,
    Deliveries,
    Delivery,
    Leadership,
    Place,
    Session,
)

FETCH_VERSION = 2
WAIT_MS = 250
Actions = Mapping[int | None, float]
"""Relative frequencies of acknowledgements; None leaves the record to the end of its lock."""
PAUSE_S = 0.05
FORGOTTEN_S = 1.5
"""Time for which a member takes no records of a partition that it has removed from a session. The locks end before."""


class Temper(NamedTuple):
    """The way in which a member works."""

    changes: float
    """Share of the turns after which it closes its session or removes a partition."""
    actions: Actions


TEMPERS = (
    Temper(0.02, {ACCEPT: 60, RELEASE: 20, REJECT: 4, GAP: 2, None: 14}),
    Temper(0.25, {ACCEPT: 30, RELEASE: 10, REJECT: 2, GAP: 1, None: 50}),
)
"""A steady member, and a restless member, which holds many records while it closes sessions."""

Leaderships = Callable[[int], Leadership | None]
"""The present leadership of a partition, as the quorum knows it."""
Held = list[tuple[int, int, int]]
"""First and last offset and delivery count of records."""


class ShareMember:
    """A process of a member. It works until the workload is over, then accepts each record until the group has none."""

    def __init__(
        self,
        workload: Workload,
        deliveries: Deliveries,
        leadership: Leaderships,
        drained: Callable[[], bool],
        name: str,
        group: str,
        topic: str,
    ) -> None:
        self.waiting: list[Commit | Send] = []
        self.workload, self.deliveries, self.leadership, self.drained = (
            workload,
            deliveries,
            leadership,
            drained,
        )
        self.name, self.group, self.topic = name, group, topic
        self.chance: Random = workload.chance()
        self.member_id = str(UUID(int=self.chance.getrandbits(128)))
        self.assigned: set[int] = set()
        self.temper = self.chance.choice(TEMPERS)
        self._epoch = JOIN_EPOCH
        self._coordinator: int | None = None
        self._tells_all = True

    async def run(self) -> None:
        """Take part until the group has finished all records."""
        workload = self.workload
        self.cluster = await started(
            lambda: Cluster(workload.cluster.bootstrap, request_timeout_ms=REQUEST_TIMEOUT_MS)
        )
        try:
            async with asyncio.TaskGroup() as group:
                for broker in workload.cluster.brokers:
                    group.create_task(Taker(self, broker).run())
                await self._take_part()
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        await self.cluster.close()

    async def _take_part(self) -> None:
        while not self.is_over:
            try:
                await self._heartbeat()
            except KafkaError as error:
                self.deliveries.counts[f"heartbeat: {error.code.name}"] += 1
                if error.code is ErrorCode.GROUP_ID_NOT_FOUND and self._epoch > JOIN_EPOCH:
                    raise InvariantBroken("a group stays", f"{self.name} at epoch {self._epoch}") from error
                if error.code in (
                    ErrorCode.UNKNOWN_MEMBER_ID,
                    ErrorCode.GROUP_ID_NOT_FOUND,
                    ErrorCode.FENCED_MEMBER_EPOCH,
                ):
                    self._epoch = JOIN_EPOCH
                self._coordinator = None
            await asyncio.sleep(self.chance.uniform(0.05, 0.3))

    @property
    def is_over(self) -> bool:
        """True if no record is left."""
        return self.workload.over and self.drained()

    async def _heartbeat(self) -> None:
        if self._coordinator is None:
            self._coordinator = await find_coordinator(self.cluster, self.group)
        if self.chance.random() < 0.03 and not self.workload.over:
            self._epoch = LEAVE_EPOCH
        request = ShareGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self._epoch,
            subscribed_topic_names=[self.topic] if self._tells_all and self._epoch >= JOIN_EPOCH else None,
        )
        connection = await self.cluster.connection(self._coordinator, "group")
        # An answer that gets lost may have the assignment, so the next request asks for all of it, as Kafka's does.
        self._tells_all = True
        answer = await connection.request(request, version=1)
        if answer.error_code:
            raise KafkaError(ErrorCode(answer.error_code), answer.error_message)
        self._tells_all = answer.member_epoch < JOIN_EPOCH
        self._epoch = max(answer.member_epoch, JOIN_EPOCH)
        if answer.assignment is not None:
            self.assigned = {
                index for topic in answer.assignment.topic_partitions for index in topic.partitions
            }

    def acts(self, held: Held) -> list[AcknowledgementBatch]:
        """Draw acknowledgements for records: one type for each run of records that have the same type."""
        drawn: list[tuple[int, int]] = []
        for first, last, _ in held:
            kind: int | None = ACCEPT
            for offset in range(first, last + 1):
                if offset == first or self.chance.random() < 0.3:
                    kind = self._action()
                if kind is not None:
                    drawn.append((offset, kind))
        batches: list[AcknowledgementBatch] = []
        for offset, kind in drawn:
            if batches and batches[-1].last_offset + 1 == offset and batches[-1].acknowledge_types == [kind]:
                batches[-1].last_offset = offset
            else:
                batches.append(
                    AcknowledgementBatch(first_offset=offset, last_offset=offset, acknowledge_types=[kind])
                )
        return batches

    def _action(self) -> int | None:
        if self.workload.over:
            return ACCEPT
        actions = self.temper.actions
        return self.chance.choices(list(actions), list(actions.values()))[0]


class Taker:
    """The share session of a member at one broker."""

    def __init__(self, member: ShareMember, broker: int) -> None:
        self._member, self._broker = member, broker
        self._ledger, self._now = member.deliveries, member.workload.now
        self._epoch = 0
        self._known: set[int] = set()
        self._resting: dict[int, float] = {}
        self._session = Session(member.name, broker)
        self._connection: Connection | None = None
        self._due: dict[int, tuple[Held, list[AcknowledgementBatch]]] = {}

    async def run(self) -> None:
        """Take records, and acknowledge them, until none is left."""
        member = self._member
        while not member.is_over:
            try:
                await self._turn()
            except KafkaError as error:
                self._ledger.counts[f"fetch: {error.code.name}"] += 1
                self._begin_anew()
                await asyncio.sleep(member.chance.uniform(0.02, 0.2))
                try:
                    await member.cluster.refresh([member.topic])
                except KafkaError:
                    continue
        await self._close()

    def _begin_anew(self) -> None:
        self._epoch, self._connection = 0, None
        self._known.clear()
        self._due.clear()
        self._session = Session(self._member.name, self._broker)

    async def _turn(self) -> None:
        member = self._member
        topic = member.cluster.metadata.topics.get(member.topic)
        if topic is None:
            await member.cluster.refresh([member.topic])
            return
        led = {
            index
            for index, partition in topic.partitions.items()
            if partition.leader == self._broker and index in member.assigned
            if self._resting.get(index, 0.0) <= self._now()
        }
        if not led and not self._known:
            await asyncio.sleep(PAUSE_S)
            await member.cluster.refresh([member.topic])
            return
        connection = await member.cluster.connection(self._broker, "share")
        if connection is not self._connection:
            self._begin_anew()
            self._connection = connection
        if self._due and self._epoch and member.chance.random() < 0.5:
            await self._acknowledge(topic.id)
            return
        await self._fetch(topic.id, led)
        if member.chance.random() < 0.3:
            await asyncio.sleep(member.chance.uniform(0.0, 0.4))
        if self._epoch and not member.workload.over and member.chance.random() < member.temper.changes:
            await self._change(topic.id)

    async def _change(self, topic_id: bytes) -> None:
        """Remove a partition from the session, or close the session, or do both."""
        chance = self._member.chance
        drawn = chance.random()
        if drawn < 0.6 and self._known:
            await self._forget(topic_id, chance.choice(sorted(self._known)))
        if drawn > 0.3:
            await self._close()

    async def _forget(self, topic_id: bytes, index: int) -> None:
        """Remove a partition from the session, whose records stay with the member until their locks end."""
        self._due.pop(index, None)
        await self._fetch(topic_id, set(), forgotten=[index])
        self._session.forgotten[index] = self._now()
        self._resting[index] = self._now() + FORGOTTEN_S
        self._ledger.counts["partitions forgotten"] += 1

    async def _fetch(self, topic_id: bytes, led: set[int], forgotten: Sequence[int] = ()) -> None:
        member, acknowledged = self._member, {} if not self._epoch else self._take_due()
        named = sorted((led - self._known) | acknowledged.keys())
        partitions = [
            FetchPartition(partition_index=index, acknowledgement_batches=acknowledged.get(index, []))
            for index in named
        ]
        request = ShareFetchRequest(
            group_id=member.group,
            member_id=member.member_id,
            share_session_epoch=self._epoch,
            max_wait_ms=member.chance.choice((0, WAIT_MS)),
            min_bytes=1,
            max_bytes=member.chance.choice((300, 1 << 20)),
            max_records=member.chance.choice((1, 3, 20)),
            batch_size=100,
            share_acquire_mode=member.chance.choice((0, 1)),
            topics=[FetchTopic(topic_id=topic_id, partitions=partitions)] if partitions else [],
            forgotten_topics_data=[ForgottenTopic(topic_id=topic_id, partitions=[*forgotten])]
            if forgotten
            else [],
        )
        before = {index: member.leadership(index) for index in led | self._known}
        sent_s, acks = self._now(), self._noted(acknowledged)
        response: ShareFetchResponse = await self._ask(request)
        self._check(response.error_code, sent_s)
        self._known = (self._known | led).difference(forgotten)
        stale = False
        for topic in response.responses:
            for row in topic.partitions:
                self._finish(acks.get(row.partition_index, ()), row.acknowledge_error_code)
                stale |= bool(row.error_code)
                if row.acquired_records and row.partition_index not in self._known:
                    raise InvariantBroken("a session has its partitions alone", f"{row.partition_index}")
                self._delivered(row, sent_s, before.get(row.partition_index))
        if stale:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _delivered(self, row: PartitionData, sent_s: float, before: Leadership | None) -> None:
        held = [(each.first_offset, each.last_offset, each.delivery_count) for each in row.acquired_records]
        if not held:
            return
        after = self._member.leadership(row.partition_index)
        is_sure = before is not None and after is not None and before[:2] == after[:2]
        leadership = after if is_sure and after is not None and after.broker == self._broker else None
        if leadership is not None and before is not None and before.led not in (None, leadership.led):
            leadership = leadership._replace(led=None)
        sent = {
            offset
            for _, header in walk_batches(bytes(row.records))
            for offset in range(header.base_offset, header.last_offset + 1)
        }
        taken = [(offset, count) for first, last, count in held for offset in range(first, last + 1)]
        if not sent.issuperset(offset for offset, _ in taken):
            raise InvariantBroken("acquired records are sent", f"{held} in {sorted(sent)}")
        if any(count == self._ledger.limit for _, count in taken) and len(taken) > 1:
            raise InvariantBroken("the last delivery is alone", f"{row.partition_index}: {held}")
        self._ledger.counts["deliveries at the end"] += len(taken) * self._member.workload.over
        for offset, count in taken:
            self._ledger.delivered(
                Place(row.partition_index, offset),
                Delivery(count, self._session, sent_s, self._now(), leadership),
            )
        if batches := self._member.acts(held):
            self._due[row.partition_index] = held, batches

    # ------------------------------------------------------------ acknowledgements

    def _take_due(self) -> dict[int, list[AcknowledgementBatch]]:
        due, self._due = self._due, {}
        self._held = {index: held for index, (held, _) in due.items()}
        return {index: batches for index, (_, batches) in due.items()}

    def _noted(self, acknowledged: dict[int, list[AcknowledgementBatch]]) -> dict[int, list[Acknowledgement]]:
        """Note acknowledgements that are about to be sent."""
        noted: dict[int, list[Acknowledgement]] = {}
        for index, batches in acknowledged.items():
            counts = {
                offset: count for first, last, count in self._held[index] for offset in range(first, last + 1)
            }
            for batch in batches:
                for offset in range(batch.first_offset, batch.last_offset + 1):
                    made = Acknowledgement(
                        batch.acknowledge_types[0], counts[offset], self._session, self._now()
                    )
                    self._ledger.acknowledgements[Place(index, offset)].append(made)
                    noted.setdefault(index, []).append(made)
        return noted

    def _finish(self, acknowledgements: Iterable[Acknowledgement], code: int) -> None:
        for each in acknowledgements:
            each.done_s, each.error = self._now(), code
            self._ledger.counts[f"acknowledgement: {ErrorCode(code).name}"] += 1
            self._ledger.counts["finished"] += each.kind in FINAL and not code

    async def _acknowledge(self, topic_id: bytes, epoch: int | None = None) -> None:
        acknowledged = self._take_due()
        request = ShareAcknowledgeRequest(
            group_id=self._member.group,
            member_id=self._member.member_id,
            share_session_epoch=self._epoch if epoch is None else epoch,
            topics=[
                AcknowledgeTopic(
                    topic_id=topic_id,
                    partitions=[
                        AcknowledgePartition(partition_index=index, acknowledgement_batches=batches)
                        for index, batches in acknowledged.items()
                    ],
                )
            ]
            if acknowledged
            else [],
        )
        sent_s, acks = self._now(), self._noted(acknowledged)
        response = await self._ask(request)
        self._check(response.error_code, sent_s)
        for topic in response.responses:
            for row in topic.partitions:
                self._finish(acks.get(row.partition_index, ()), row.error_code)

    async def _close(self) -> None:
        """Close the session, with the acknowledgements that are due."""
        topic = self._member.cluster.metadata.topics.get(self._member.topic)
        if self._connection is None or not self._epoch or topic is None:
            return
        try:
            await self._acknowledge(topic.id, -1)
            self._ledger.counts["sessions closed"] += 1
        except KafkaError:
            pass
        self._begin_anew()

    async def _ask(self, request: Any) -> Any:
        assert self._connection is not None
        return await self._connection.request(request, version=FETCH_VERSION, timeout_ms=REQUEST_TIMEOUT_MS)

    def _check(self, code: int, sent_s: float) -> None:
        if code:
            self._ledger.counts[f"refused: {ErrorCode(code).name}"] += 1
            raise KafkaError(ErrorCode(code))
        self._session.alive_s = sent_s
        self._epoch += 1
