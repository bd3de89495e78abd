"""A worker that takes tasks of a share group, and writes an output for each in the transaction that acknowledges it.

    python -m tests.integration.transactional_share_worker BOOTSTRAP NAME GROUP TASKS OUTPUTS

The worker runs until it is killed. Its share sessions are raw requests; its producer is Ottla's.
"""

from __future__ import annotations

import asyncio
import sys
import uuid
from contextlib import suppress

from ottla import Producer
from ottla.client.producing.accumulator import ProducerIdentity
from ottla.client.transactions.share_acknowledgements import (
    ShareGroupMetadata,
    acknowledgement_failure,
    share_acknowledgement,
)
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.share_fetch import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    FetchPartition,
    FetchTopic,
    ShareFetchRequest,
)
from ottla.protocol.records.record import decode_records
from ottla.protocol.records.record_batch import walk_batches
from tests.raw_peer import Peer

ACCEPT = 1
TASKS_AT_ONCE = 40


class Session:
    """A share session with the leader of one partition."""

    def __init__(self, port: int, group: str, topic_id: bytes, partition: int) -> None:
        self._peer = Peer(port)
        self._group, self._topic_id, self._partition = group, topic_id, partition
        self._member, self._epoch = str(uuid.uuid4()), 0

    def close(self) -> None:
        self._peer.close()

    def take(self) -> list[tuple[int, bytes]]:
        """Return offsets and values of tasks."""
        topics = [
            FetchTopic(topic_id=self._topic_id, partitions=[FetchPartition(partition_index=self._partition)])
        ]
        request = ShareFetchRequest(
            group_id=self._group,
            member_id=self._member,
            share_session_epoch=self._epoch,
            max_wait_ms=200,
            min_bytes=1,
            max_records=TASKS_AT_ONCE,
            share_acquire_mode=1,
            topics=topics if self._epoch == 0 else [],
        )
        answer = self._peer.ask(request, 2)
        _raise(answer.error_code)
        self._epoch += 1
        found: list[tuple[int, bytes]] = []
        for topic in answer.responses:
            for part in topic.partitions:
                _raise(part.error_code)
                acquired = {
                    offset
                    for batch in part.acquired_records
                    for offset in range(batch.first_offset, batch.last_offset + 1)
                }
                data = memoryview(part.records or b"")
                for start, header in walk_batches(data, partial_tail=True):
                    records = decode_records(data[start : start + header.size])
                    found += [
                        (record.offset, bytes(record.value or b""))
                        for record in records
                        if record.offset in acquired
                    ]
        return found

    async def acknowledge(
        self, offsets: list[int], transactional_id: str, identity: ProducerIdentity
    ) -> None:
        """Accept tasks in a transaction. Raises KafkaError."""
        batches = [
            AcknowledgementBatch(first_offset=offset, last_offset=offset, acknowledge_types=[ACCEPT])
            for offset in sorted(offsets)
        ]
        part = AcknowledgePartition(partition_index=self._partition, acknowledgement_batches=batches)
        request = share_acknowledgement(
            transactional_id,
            identity,
            ShareGroupMetadata(self._group, self._member, self._epoch),
            [AcknowledgeTopic(topic_id=self._topic_id, partitions=[part])],
        )
        self._epoch += 1
        try:
            answer = await asyncio.to_thread(self._peer.ask, request, 0)
        except OSError as error:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, str(error)) from error
        failure = acknowledgement_failure(answer)
        if failure is not None:
            raise failure


def _raise(code: int) -> None:
    if code:
        raise KafkaError(ErrorCode.of(code), "the share session ends")


def leaders(ports: list[int], topic: str) -> tuple[bytes, dict[int, int]]:
    """Return the id of a topic, and the port of the leader of each partition."""
    for port in ports:
        with suppress(OSError):
            peer = Peer(port)
            answer = peer.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 12)
            peer.close()
            of_broker = {broker.node_id: broker.port for broker in answer.brokers}
            found = answer.topics[0]
            places = {
                part.partition_index: of_broker[part.leader_id]
                for part in found.partitions
                if part.leader_id in of_broker
            }
            return bytes(found.topic_id), places
    raise OSError("no broker answers")


async def work_off(producer: Producer, session: Session, outputs: str) -> int:
    """Work off tasks of one partition in one transaction, and return their number."""
    tasks = await asyncio.to_thread(session.take)
    if not tasks:
        return 0
    async with producer.transaction():
        for _, value in tasks:
            await producer.send(outputs, value)
        transactions = producer._transactions
        assert transactions is not None
        offsets = [offset for offset, _ in tasks]
        await transactions.acknowledge_records(
            lambda transactional_id, identity: session.acknowledge(offsets, transactional_id, identity)
        )
    return len(tasks)


async def run(bootstrap: str, name: str, group: str, tasks: str, outputs: str) -> None:
    ports = [int(address.rpartition(":")[2]) for address in bootstrap.split(",")]
    sessions: dict[int, tuple[int, Session]] = {}
    while True:
        try:
            async with Producer(bootstrap_servers=bootstrap, transactional_id=name) as producer:
                while True:
                    topic_id, places = await asyncio.to_thread(leaders, ports, tasks)
                    for partition, port in places.items():
                        known = sessions.get(partition)
                        if known is None or known[0] != port:
                            sessions[partition] = port, Session(port, group, topic_id, partition)
                        await work_off(producer, sessions[partition][1], outputs)
        except (KafkaError, OSError) as error:
            print(f"{name} goes on after {error!r}", flush=True)
            for _, session in sessions.values():
                session.close()
            sessions.clear()
            await asyncio.sleep(0.1)


if __name__ == "__main__":
    asyncio.run(run(*sys.argv[1:]))
