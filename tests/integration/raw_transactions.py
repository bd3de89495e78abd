"""Transaction requests in any order, each answered with its error, without a client that would intervene.

    raw = RawTransactions(bootstrap)
    who = raw.init("mover-1")
    raw.add(who, "orders", [0])
    raw.produce(who, "orders", 0, b"v")
    assert raw.end(who, commit=True).code == ErrorCode.NONE

Each request goes where a client would send it: to the coordinator, or to the leader of the partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, NamedTuple, Self

from confluent_kafka.admin import AdminClient

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.producers import InitProducerIdRequest
from ottla.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    EndTxnRequest,
)
from ottla.protocol.records.record import encode_batch
from ottla.protocol.wire.schema import Message
from tests.cluster import wait_for
from tests.raw_peer import Peer

ANSWER_S = 60.0
TRANSACTION = 1
"""Type number of transaction coordinators in FindCoordinator."""
TIMEOUT_MS = 60_000


@dataclass(frozen=True)
class Who:
    """The identity of a producer in requests."""

    transactional_id: str
    producer_id: int = -1
    epoch: int = -1

    def but(self, **other: Any) -> Who:
        """Return a copy with other values."""
        return replace(self, **other)


class ProducerAnswer(NamedTuple):
    """An answer: its error, and the producer's current identity."""

    code: ErrorCode
    who: Who


class RawTransactions:
    """Connections to the brokers of a cluster."""

    def __init__(self, bootstrap: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._any = int(bootstrap.split(",")[0].rpartition(":")[2])
        self._peers: dict[int, Peer] = {}
        self._coordinators: dict[str, int] = {}
        self._leaders: dict[tuple[str, int], int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.disconnect()

    def disconnect(self) -> None:
        """Close all connections, and forget coordinators and leaders."""
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()
        self._coordinators.clear()
        self._leaders.clear()

    def init(self, transactional_id: str, timeout_ms: int = TIMEOUT_MS, version: int = 5) -> Who:
        """Return a new instance; repeat the request while an older transaction is being ended."""

        def ask() -> Who | None:
            answer = self.try_init(Who(transactional_id), timeout_ms, version)
            if answer.code is ErrorCode.CONCURRENT_TRANSACTIONS:
                return None
            assert answer.code is ErrorCode.NONE, answer
            return answer.who

        return wait_for(ask, f"a producer id of {transactional_id}")

    def try_init(self, who: Who, timeout_ms: int = TIMEOUT_MS, version: int = 5) -> ProducerAnswer:
        """Send InitProducerId once."""
        message = InitProducerIdRequest(
            transactional_id=who.transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=who.producer_id,
            producer_epoch=who.epoch,
        )
        answer = self._of_coordinator(who, message, version)
        found = who.but(producer_id=answer.producer_id, epoch=answer.producer_epoch)
        return ProducerAnswer(ErrorCode(answer.error_code), found)

    def add(self, who: Who, topic: str, partitions: Sequence[int], version: int = 3) -> list[ErrorCode]:
        """Send AddPartitionsToTxn as clients (up to version 3) or as brokers."""
        topics = [AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))]
        message = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=who.transactional_id,
            v3_and_below_producer_id=who.producer_id,
            v3_and_below_producer_epoch=who.epoch,
            v3_and_below_topics=topics,
        )
        if version > 3:
            transaction = AddPartitionsToTxnTransaction(
                transactional_id=who.transactional_id,
                producer_id=who.producer_id,
                producer_epoch=who.epoch,
                topics=topics,
            )
            message = AddPartitionsToTxnRequest(transactions=[transaction])
        answer = self._of_coordinator(who, message, version)
        found = answer.results_by_topic_v3_and_below
        if version > 3:
            if answer.error_code:
                return [ErrorCode(answer.error_code)]
            (only,) = answer.results_by_transaction
            found = only.topic_results
        return [
            ErrorCode(result.partition_error_code) for added in found for result in added.results_by_partition
        ]

    def add_offsets(self, who: Who, group: str, version: int = 4) -> ErrorCode:
        """Send AddOffsetsToTxn."""
        message = AddOffsetsToTxnRequest(
            transactional_id=who.transactional_id,
            producer_id=who.producer_id,
            producer_epoch=who.epoch,
            group_id=group,
        )
        return ErrorCode(self._of_coordinator(who, message, version).error_code)

    def end(self, who: Who, *, commit: bool, version: int = 4) -> ProducerAnswer:
        """Send EndTxn, and repeat it while markers are still being written."""

        def ask() -> ProducerAnswer | None:
            answer = self.try_end(who, commit=commit, version=version)
            return None if answer.code is ErrorCode.CONCURRENT_TRANSACTIONS else answer

        return wait_for(ask, f"the end of a transaction of {who}", ANSWER_S)

    def try_end(self, who: Who, *, commit: bool, version: int = 4) -> ProducerAnswer:
        """Send EndTxn once."""
        message = EndTxnRequest(
            transactional_id=who.transactional_id,
            producer_id=who.producer_id,
            producer_epoch=who.epoch,
            committed=commit,
        )
        answer = self._of_coordinator(who, message, version)
        found = who.but(producer_id=answer.producer_id, epoch=answer.producer_epoch) if version > 4 else who
        return ProducerAnswer(ErrorCode(answer.error_code), found)

    def produce(
        self,
        who: Who,
        topic: str,
        partition: int,
        value: bytes,
        *,
        sequence: int = 0,
        version: int = 11,
        acks: int = -1,
        transactional: bool = True,
        names_id: bool = True,
    ) -> ErrorCode:
        """Produce one record; from version 12 on this also adds the partition."""
        batch = encode_batch(
            [(None, value, 1_700_000_000_000)],
            producer_id=who.producer_id,
            producer_epoch=who.epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
        return self.produce_batch(
            who.transactional_id if names_id else None, topic, partition, batch, version=version, acks=acks
        )

    def produce_batch(
        self,
        transactional_id: str | None,
        topic: str,
        partition: int,
        batch: bytes,
        *,
        version: int = 11,
        acks: int = -1,
    ) -> ErrorCode:
        """Produce a batch of these bytes."""
        data = PartitionProduceData(index=partition, records=batch)
        message = ProduceRequest(
            transactional_id=transactional_id,
            acks=acks,
            timeout_ms=30_000,
            topic_data=[TopicProduceData(name=topic, partition_data=[data])],
        )
        answer = self._ask(self._leader(topic, partition), message, version)
        return ErrorCode(answer.responses[0].partition_responses[0].error_code)

    def coordinator(self, transactional_id: str) -> int:
        """Return the port of the transactional id's coordinator."""
        if transactional_id not in self._coordinators:
            question = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=[transactional_id])

            def ask() -> int | None:
                (found,) = self._ask(self._any, question, 4).coordinators
                return int(found.port) if found.error_code == ErrorCode.NONE else None

            self._coordinators[transactional_id] = wait_for(ask, f"a coordinator of {transactional_id!r}")
        return self._coordinators[transactional_id]

    def _of_coordinator(self, who: Who, message: Message, version: int) -> Any:
        port = self.coordinator(who.transactional_id) if who.transactional_id else self._any
        return self._ask(port, message, version)

    def _ask(self, port: int, message: Message, version: int) -> Any:
        try:
            return self._peer(port).ask(message, version, ANSWER_S)
        except ConnectionError:
            self._peers.pop(port).close()
            raise

    def _peer(self, port: int) -> Peer:
        if port not in self._peers:
            self._peers[port] = Peer(port)
        return self._peers[port]

    def _leader(self, topic: str, partition: int) -> int:
        place = topic, partition
        if place not in self._leaders:
            metadata = self._admin.list_topics(topic, 30)
            leader = metadata.topics[topic].partitions[partition].leader
            self._leaders[place] = int(metadata.brokers[leader].port)
        return self._leaders[place]
