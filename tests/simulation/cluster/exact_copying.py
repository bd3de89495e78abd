"""A pipeline that copies exactly once: group members copy the committed records of one topic into another.

Offsets and records are committed in one transaction (KIP-447).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random

from ottla.client.records import TopicPartition
from ottla.protocol.errors import KafkaError
from tests.histories.operations import Commit, Send, Transaction
from tests.simulation.cluster.group_members import WatchedConsumer, ask_committed
from tests.simulation.cluster.own_writer import TIMEOUTS_MS, OwnProducer
from tests.simulation.cluster.workload import POLL_MS, Workload, started

WRITERS = ("writer-", "producer-", "prober", "driver-", "worker-", "decider-", "task-", "appender-")
"""Name prefixes of the clients that write to the source."""
HESITATES = 0.4
"""Probability of a delay between the offsets and the end of the transaction, in which another member may take over."""


class ExactCopyist:
    """A member of the pipeline that copies exactly once, despite all faults."""

    def __init__(
        self, workload: Workload, name: str, member: str, group: str, source: str, target: str
    ) -> None:
        """`member` determines the transactional id, which is the same for all processes of a client."""
        self._workload, self._name, self._member, self._group = workload, name, member, group
        self._source = source
        self._sources = [partition for partition in workload.partitions if partition.topic == source]
        self._target = TopicPartition(target, 0)
        self._chance: Random = workload.chance()
        self._timeout_ms = self._chance.choice(TIMEOUTS_MS)
        self._own: OwnProducer | None = None
        self._commits: list[Commit] = []
        self._round = 0

    @property
    def waiting(self) -> Sequence[Commit | Send | Transaction]:
        """Unanswered requests."""
        return [] if self._own is None else [*self._own.waiting, *self._commits]

    async def run(self) -> None:
        """Copy until no client writes to the source any more, and all of it has been copied."""
        while not await self._copied():
            await asyncio.sleep(0.02)

    async def _copied(self) -> bool:
        """Copy until the source is exhausted or an error occurs; then go back to the end of the last transaction."""
        workload = self._workload
        self._round += 1
        actor = f"{self._name}/{self._round}"
        consumer = await started(
            lambda: WatchedConsumer(
                workload, actor, self._source, self._group, isolation_level="read_committed"
            )
        )
        own = self._own = await started(
            lambda: OwnProducer(workload, actor, f"copier {self._member}", self._timeout_ms)
        )
        copied: dict[TopicPartition, int] = {}
        try:
            while not await self._nothing_left(consumer):
                if not await self._copy_some(consumer, own, copied):
                    copied.clear()
                    await self._go_back(consumer)
        except KafkaError:
            return False
        finally:
            await consumer.stop()
            await own.stop()
        return True

    async def _go_back(self, consumer: WatchedConsumer) -> None:
        """Seek to the end of the last transaction.

        Leaving the group instead would end the generation of the other members.
        """
        for partition in list(consumer.owned):
            committed = await consumer.committed(partition)
            if partition not in consumer.owned:
                continue
            if committed is None:
                consumer.seek_to_beginning(partition)
            else:
                consumer.seek(partition, committed)

    async def _copy_some(
        self, consumer: WatchedConsumer, own: OwnProducer, copied: dict[TopicPartition, int]
    ) -> bool:
        """Do one transaction, or none without new records.

        Returns False if it was aborted. Raises KafkaError if producer and consumer must be replaced.
        """
        taken = await consumer.getmany(timeout_ms=POLL_MS)
        group, places = consumer.group_metadata(), list(consumer.owned)
        try:
            offsets = {place: await consumer.position(place) for place in places}
        except ValueError:
            return False
        offsets = {
            partition: offset for partition, offset in offsets.items() if offset != copied.get(partition)
        }
        if not offsets or consumer.group_metadata() != group:
            return not taken
        transaction = await own.begin()
        try:
            values = [record.value or b"" for records in taken.values() for record in records]
            await own.send([(self._target, value) for value in values], transaction)
            await own.producer.send_offsets_to_transaction(offsets, group)
            if self._chance.random() < HESITATES:
                await self._workload.idle(self._chance.uniform(0, 0.8))
        except KafkaError:
            await own.end(transaction, commits=False)
            return False
        self._commits = [
            Commit(
                self._group,
                group.member_id,
                group.generation,
                *partition,
                offset,
                self._workload.now(),
                transaction=transaction.name,
            )
            for partition, offset in offsets.items()
        ]
        for each in self._commits:
            self._workload.history.add(each)
        try:
            await own.end(transaction, commits=True)
        finally:
            for each in self._commits:
                error = transaction.error
                each.finish(self._workload.now(), error, tried_before=error is not None)
        copied |= offsets
        await ask_committed(self._workload, consumer, self._group, list(offsets))
        return True

    async def _nothing_left(self, consumer: WatchedConsumer) -> bool:
        workload = self._workload
        if not workload.over:
            return False
        if not all(ended for name, ended in workload.ended.items() if name.startswith(WRITERS)):
            return False
        ends = await consumer.end_offsets(self._sources)
        for source in self._sources:
            if (await consumer.committed(source) or 0) < ends[source]:
                return False
        return True
