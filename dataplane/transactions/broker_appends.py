"""Record batches that a broker itself writes in a transaction, to partitions that any broker leads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from ...protocol.cluster.cluster_image import ClusterImage
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ..peers.requests import PeerLost, PeerRequests
from ..replication.replica.partition import Partition
from ..replication.replicas.replicas import Replicas
from ..share.state.stored_state import StateWriter
from .transaction_gate import TransactionGate

_PRODUCE_VERSION: Final = 13
TIMEOUT_MS: Final = 10_000
"""Time within which a batch has to be replicated."""


class BrokerAppends:
    """Transactional batches of this broker: appended here by a call, and at other leaders by Produce."""

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

    async def append(self, topic_id: bytes, partition: int, records: bytes, writer: StateWriter) -> None:
        """Append one batch with acks=all, in the writer's transaction. Return once it is below the high watermark.

        Raises KafkaError. After an error the transaction must be aborted: the batch may be part of it.
        """
        leader = self._leader(topic_id, partition)
        try:
            async with asyncio.timeout(2 * TIMEOUT_MS / 1000):
                if leader == self._node_id:
                    await self._append_here(topic_id, partition, records, writer)
                else:
                    await self._append_there(leader, topic_id, partition, records, writer)
        except TimeoutError:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, f"broker {leader} does not answer a Produce"
            ) from None

    def _leader(self, topic_id: bytes, partition: int) -> int:
        topic = self._image().topics_by_id.get(topic_id)
        state = None if topic is None else topic.partitions.get(partition)
        if topic is None or state is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"topic {topic_id.hex()} was deleted")
        if state.leader < 0:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic.name}-{partition} has no leader")
        return state.leader

    async def _append_here(
        self, topic_id: bytes, partition: int, records: bytes, writer: StateWriter
    ) -> None:
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
        self, leader: int, topic_id: bytes, partition: int, records: bytes, writer: StateWriter
    ) -> None:
        data = PartitionProduceData(index=partition, records=records)
        request = ProduceRequest(
            transactional_id=writer.transactional_id,
            acks=-1,
            timeout_ms=TIMEOUT_MS,
            topic_data=[TopicProduceData(topic_id=topic_id, partition_data=[data])],
        )
        try:
            response: ProduceResponse = await self._peers.ask(leader, request, _PRODUCE_VERSION)
        except PeerLost as error:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, str(error)) from error
        answer = response.responses[0].partition_responses[0]
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
