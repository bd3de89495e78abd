"""A pipeline: members of a group copy one topic into another, and commit their progress afterwards."""

from __future__ import annotations

import asyncio

from ottla.client.producer import Producer
from ottla.client.records import TopicPartition
from ottla.protocol.errors import KafkaError
from tests.histories.operations import ALL_IN_SYNC, Commit, Send
from tests.simulation.cluster.group_members import WatchedConsumer, commit
from tests.simulation.cluster.workload import (
    DELIVERY_TIMEOUT_MS,
    POLL_MS,
    REQUEST_TIMEOUT_MS,
    Workload,
    started,
)

SENDERS = ("producer-", "prober")


class Copyist:
    """A member of the pipeline that copies at least once, despite all faults."""

    def __init__(self, workload: Workload, name: str, group: str, source: str, target: str) -> None:
        self.waiting: list[Commit | Send] = []
        self._workload, self._name, self._group = workload, name, group
        self._target = target
        self._source = source
        self._sources = [partition for partition in workload.partitions if partition.topic == source]
        self._round = self._sent = 0

    async def run(self) -> None:
        """Copy until no producer sends to the source any more, and all of it has been copied."""
        while not await self._copied():
            pass

    async def _copied(self) -> bool:
        """Copy until the source is exhausted or an error occurs; then uncommitted records are copied again."""
        workload = self._workload
        self._round += 1
        actor = f"{self._name}/{self._round}"
        consumer = await started(lambda: WatchedConsumer(workload, actor, self._source, self._group))
        producer = await started(
            lambda: Producer(
                bootstrap_servers=workload.cluster.bootstrap,
                acks=ALL_IN_SYNC,
                request_timeout_ms=REQUEST_TIMEOUT_MS,
                delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
                max_block_ms=2000,
            )
        )
        copied: dict[TopicPartition, tuple[str, int]] = {}
        try:
            while not await self._nothing_left(consumer):
                taken = await consumer.getmany(timeout_ms=POLL_MS)
                sessions = dict(consumer.owned)
                if taken:
                    values = [record.value or b"" for records in taken.values() for record in records]
                    await self._send(producer, actor, values)
                    for partition, records in taken.items():
                        copied[partition] = sessions[partition], records[-1].offset + 1
                if await self._commit(consumer, copied):
                    copied.clear()
        except KafkaError:
            await asyncio.sleep(0.02)
            return False
        finally:
            await consumer.stop()
            await producer.stop()
        return True

    async def _send(self, producer: Producer, actor: str, values: list[bytes]) -> None:
        """Send values. Raises KafkaError if any of them may not have arrived."""
        workload, place = self._workload, TopicPartition(self._target, 0)
        sends = []
        for value in values:
            self._sent += 1
            send = Send(actor, actor, *place, value, ALL_IN_SYNC, True, self._sent, workload.now())
            workload.history.add(send)
            sends.append(send)
        self.waiting[:] = sends
        deliveries = [
            asyncio.ensure_future(self._delivered(producer, send, value))
            for send, value in zip(sends, values, strict=True)
        ]
        failed = [error for error in await asyncio.gather(*deliveries) if error is not None]
        if failed:
            raise failed[0]

    async def _delivered(self, producer: Producer, send: Send, value: bytes) -> KafkaError | None:
        try:
            metadata = await (await producer.send(send.topic, value, partition=send.partition))
        except KafkaError as error:
            send.finish(self._workload.now(), error.code.name, tried_before=True)
            return error
        send.finish(self._workload.now(), offset=metadata.offset)
        return None

    async def _commit(self, consumer: WatchedConsumer, copied: dict[TopicPartition, tuple[str, int]]) -> bool:
        """Commit the copied offsets, and return whether that succeeded.

        A commit that met a new generation must be repeated. Partitions that no longer belong to this member's session
        are not committed, since another member copies their records again.
        """
        own = {
            partition: offset
            for partition, (session, offset) in copied.items()
            if consumer.owned.get(partition) == session
        }
        return await commit(self._workload, consumer, self._group, own, self.waiting)

    async def _nothing_left(self, consumer: WatchedConsumer) -> bool:
        workload = self._workload
        senders = [ended for name, ended in workload.ended.items() if name.startswith(SENDERS)]
        if not (workload.over and all(senders)):
            return False
        ends = await consumer.end_offsets(self._sources)
        for source in self._sources:
            if (await consumer.committed(source) or 0) < ends[source]:
                return False
        return True
