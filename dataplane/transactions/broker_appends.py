"""Dead letters that a broker writes in a transaction, to partitions that any broker leads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from ...protocol.cluster.cluster_image import ClusterImage
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.dead_letters import WriteDeadLettersRequest, WriteDeadLettersResponse
from ..coordinated_log.transactional_producer import TransactionalProducer
from ..peers.requests import PeerLost, PeerRequests
from ..replication.replica.partition import Partition
from ..replication.replicas.replicas import Replicas
from .transaction_gate import TransactionGate

TIMEOUT_S: Final = 20.0
"""Time within which a batch has to be replicated."""


class BrokerAppends:
    """Transactional batches of dead letters: appended here by a call, and at other leaders by a request."""

    def __init__(
        self,
        node_id: int,
        replicas: Replicas,
        gate: TransactionGate,
        peers: PeerRequests,
        image: Callable[[], ClusterImage],
    ) -> None:
        self._node_id, self._replicas, self._gate, self._peers = node_id, replicas, gate, peers
        self._image = image

    async def append(
        self, topic_id: bytes, partition: int, records: bytes, writer: TransactionalProducer
    ) -> None:
        """Append one batch with acks=all, in the writer's transaction. Return once it is below the high watermark.

        Raises KafkaError. After an error the transaction must be aborted: the batch may be part of it.
        """
        leader = self._leader(topic_id, partition)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                if leader == self._node_id:
                    await self.append_here(topic_id, partition, records, writer)
                else:
                    await self._append_there(leader, topic_id, partition, records, writer)
        except TimeoutError:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, f"broker {leader} has not appended dead letters in time"
            ) from None

    def _leader(self, topic_id: bytes, partition: int) -> int:
        topic = self._image().topics_by_id.get(topic_id)
        state = None if topic is None else topic.partitions.get(partition)
        if topic is None or state is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"topic {topic_id.hex()} was deleted")
        if state.leader < 0:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic.name}-{partition} has no leader")
        return state.leader

    async def append_here(
        self, topic_id: bytes, partition: int, records: bytes, writer: TransactionalProducer
    ) -> None:
        """Append one batch to a partition that this broker leads. Return once it is below the high watermark. Raises
        KafkaError."""
        replica = self._replicas.get_by_id(topic_id, partition)
        replicated: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

        def released(error: KafkaError | None) -> None:
            if replicated.done():
                return
            try:
                if error is not None:
                    raise error
                _append(replica, records, replicated)
            except KafkaError as refused:
                replicated.set_exception(refused)

        self._gate.admit(replica, writer, released)
        outcome = await replicated
        if outcome is not ErrorCode.NONE:
            raise KafkaError(outcome, f"the batch for {replica!r} may not be replicated")

    async def _append_there(
        self, leader: int, topic_id: bytes, partition: int, records: bytes, writer: TransactionalProducer
    ) -> None:
        request = WriteDeadLettersRequest(
            transactional_id=writer.transactional_id,
            producer_id=writer.producer_id,
            producer_epoch=writer.producer_epoch,
            topic_id=topic_id,
            partition=partition,
            records=records,
        )
        try:
            answer: WriteDeadLettersResponse = await self._peers.ask(leader, request, 0)
        except PeerLost as error:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, str(error)) from error
        if answer.error_code != ErrorCode.NONE:
            raise KafkaError(
                ErrorCode.of(answer.error_code), answer.error_message or f"broker {leader} refuses"
            )


def _append(replica: Partition, records: bytes, replicated: asyncio.Future[ErrorCode]) -> None:
    """Append a batch, and report when it is below the high watermark. Raises KafkaError if it was not appended."""
    result = replica.append(memoryview(bytearray(records)), required_acks=-1)

    def reached(error: ErrorCode) -> None:
        if not replicated.done():
            replicated.set_result(error)

    replica.on_high_watermark(result.last_offset + 1, reached)
