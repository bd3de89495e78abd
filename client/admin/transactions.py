"""Methods that list, describe, end and delete transactions, and find hanging ones (KIP-664, KIP-994, KIP-1152)."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence

from ...protocol.errors import KafkaError
from ...protocol.messages.aborts import AbortTransactionRequest
from ...protocol.messages.describe_producers import DescribeProducersRequest, ProducerState, TopicRequest
from ...protocol.messages.find_coordinator import TRANSACTION_KEY, FindCoordinatorRequest
from ...protocol.messages.transaction_descriptions import (
    DescribedTransaction,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)
from ...protocol.messages.transactional_ids import DeleteTransactionalIdRequest
from ...protocol.messages.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from ..bounds import Milliseconds, Name, ProducerId
from ..connections.metadata import BrokerAddress
from ..connections.operator_proof import prove_operator
from ..records import TopicPartition
from .admin_base import AdminBase
from .leader_requests import ask_leaders
from .session import check, error_of
from .values import HangingTransaction, ProducerDescription, TransactionDescription, TransactionListing

MAX_TRANSACTION_TIMEOUT_MS = 15 * 60 * 1000
"""Default of transaction.max.timeout.ms; a transaction open for longer should have been aborted."""
_ANY_DURATION = -1
_OPERATOR_LANE = "operator"
"""The name of a dedicated connection, since a connection is authorized once by proof of the cluster secret."""
_IDS_PER_REQUEST = 500
_PARTITIONS_PER_REQUEST = 500
Described = dict[str, TransactionDescription | KafkaError]
Producers = dict[TopicPartition, Sequence[ProducerDescription] | KafkaError]
Progress = Callable[[int, int], None]


class TransactionAdmin(AdminBase):
    """The methods that show and end transactions, and delete transactional ids."""

    async def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[ProducerId] = (),
        open_longer_than_ms: Milliseconds | None = None,
        pattern: str | None = None,
    ) -> list[TransactionListing]:
        """Return the transactional ids that pass all filters, sorted, asked from every broker.

        `pattern` is a regular expression (RE2) for whole ids. As in Kafka, an id that never began a transaction passes
        `open_longer_than_ms`. Raises ValueError for a state that does not exist.
        """
        request = _listing_request(states, producer_ids, open_longer_than_ms, pattern)
        found: dict[tuple[str, int], TransactionListing] = {}
        for broker_id in await self.session.brokers_to_ask():
            for listing in await self.session.with_retries(lambda of=broker_id: self._listed(of, request)):  # type: ignore[misc]
                found[listing.transactional_id, listing.producer_id] = listing
        return [found[key] for key in sorted(found)]

    async def list_transactions_by_broker(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[ProducerId] = (),
        open_longer_than_ms: Milliseconds | None = None,
        pattern: str | None = None,
        patience_ms: Milliseconds = 0,
    ) -> dict[int, list[TransactionListing] | KafkaError]:
        """Return transactional ids as `list_transactions` does, by the broker that reports them; or the broker's error.

        A broker that may answer later, such as one with COORDINATOR_LOAD_IN_PROGRESS, is asked again for `patience_ms`.
        Raises ValueError for a state that does not exist.
        """
        request = _listing_request(states, producer_ids, open_longer_than_ms, pattern)
        return await self.session.of_each_broker(
            lambda broker_id: self._listed(broker_id, request), patience_ms=patience_ms
        )

    async def _listed(self, broker_id: int, request: ListTransactionsRequest) -> list[TransactionListing]:
        response = await self.session.cluster.ask(broker_id, request)
        check(response.error_code, f"transactions of broker {broker_id}", None)
        if response.unknown_state_filters:
            raise ValueError(f"no transaction is ever {' or '.join(response.unknown_state_filters)}")
        return [
            TransactionListing(state.transactional_id, state.producer_id, state.transaction_state, broker_id)
            for state in response.transaction_states
        ]

    async def describe_transactions(self, names: Iterable[Name]) -> Described:
        """Return the newest transaction of each transactional id, asked from its coordinator; or the error:
        TRANSACTIONAL_ID_NOT_FOUND."""
        waiting = list(dict.fromkeys(names))
        found: Described = {}
        for first in range(0, len(waiting), _IDS_PER_REQUEST):
            left = set(waiting[first : first + _IDS_PER_REQUEST])

            await self.session.with_retries(lambda left=left: self._describe_some(left, found))  # type: ignore[misc]
        return {name: found[name] for name in waiting}

    async def _describe_some(self, left: set[str], found: Described) -> None:
        """Describe transactional ids: move each id with a result from `left` to `found`. Raises KafkaError if another
        attempt may describe the rest."""
        problem: KafkaError | None = None
        for coordinator, some in (await self._speakers(sorted(left))).items():
            request = DescribeTransactionsRequest(transactional_ids=some)
            for state in (await self.session.cluster.ask(coordinator, request)).transaction_states:
                error = error_of(state.error_code, None)
                if error is not None and error.code.retriable:
                    problem = error
                    continue
                found[state.transactional_id] = error or _described(state, coordinator)
                left.discard(state.transactional_id)
        if problem is not None:
            raise problem

    async def abort_transaction(self, transactional_id: Name) -> None:
        """Abort the open transaction of a transactional id; its producer is fenced. Nothing happens if no transaction
        is open.

        This is an extension of Ottla: Kafka's brokers have no such request. Raises KafkaError:
        TRANSACTIONAL_ID_NOT_FOUND, VersionUnsupported.
        """
        # Only one broker is asked: a second abort, sent because the first was slow, might abort the next transaction.
        connection = await self.session.cluster.any_connection()
        request = AbortTransactionRequest(transactional_id=transactional_id)
        response = await connection.request(request)
        check(response.error_code, f"transactional id {transactional_id!r}", response.error_message)

    async def delete_transactional_id(self, transactional_id: Name) -> None:
        """Remove a transactional id and its application version, as if it had never existed. A producer that still uses
        the id is refused in its next transaction.

        This is an extension of Ottla: Kafka's brokers have no such request. Raises KafkaError:
        TRANSACTIONAL_ID_NOT_FOUND; CONCURRENT_TRANSACTIONS while a transaction of the id is open, or is decided and not
        complete; VersionUnsupported.
        """
        # Only one broker is asked: a second deletion, sent because the first was slow, might delete a new id of this
        # name.
        connection = await self.session.cluster.any_connection()
        request = DeleteTransactionalIdRequest(transactional_id=transactional_id)
        response = await connection.request(request)
        check(response.error_code, f"transactional id {transactional_id!r}", response.error_message)

    async def describe_producers(
        self, partitions: Iterable[TopicPartition], *, progress: Progress = lambda done, total: None
    ) -> Producers:
        """Return the producers that the leader of each partition remembers; or the leader's error.

        `progress` is called with the number of partitions done and their total.
        """

        async def ask(leader: int, some: list[TopicPartition]) -> Producers:
            topics: dict[str, list[int]] = {}
            for topic, index in some:
                topics.setdefault(topic, []).append(index)
            request = DescribeProducersRequest(
                topics=[
                    TopicRequest(name=name, partition_indexes=indexes) for name, indexes in topics.items()
                ]
            )
            response = await self.session.cluster.ask(leader, request)
            return {
                TopicPartition(topic.name, partition.partition_index): error_of(
                    partition.error_code, partition.error_message
                )
                or [_producer(state) for state in partition.active_producers]
                for topic in response.topics
                for partition in topic.partitions
            }

        waiting = list(dict.fromkeys(partitions))
        found: Producers = {}
        for first in range(0, len(waiting), _PARTITIONS_PER_REQUEST):
            some = waiting[first : first + _PARTITIONS_PER_REQUEST]
            found.update(await ask_leaders(self.session, some, ask))
            progress(first + len(some), len(waiting))
        return found

    async def find_hanging(
        self,
        partitions: Iterable[TopicPartition],
        *,
        max_transaction_timeout_ms: int = MAX_TRANSACTION_TIMEOUT_MS,
        progress: Progress = lambda done, total: None,
    ) -> list[HangingTransaction]:
        """Return the hanging transactions of these partitions.

        A transaction hangs if it is open, nothing was written in it for `max_transaction_timeout_ms`, and no
        transactional id has it open in the partition: then no coordinator will end it. Raises KafkaError for a
        partition whose leader did not answer.
        """
        longest_ago = time.time() * 1000 - max_transaction_timeout_ms
        suspects = {
            transaction
            for transaction in await self._open_in(partitions, progress)
            if transaction.producer.last_ms < longest_ago
        }
        if not suspects:
            return []
        without_owner = await self._without_owner(suspects)
        # A transaction that was ended meanwhile is in no list any more, and is not open either.
        still_open = await self._open_in({transaction.partition for transaction in without_owner})
        return sorted(
            without_owner & set(still_open),
            key=lambda transaction: (transaction.partition, transaction.producer.producer_id),
        )

    async def abort_hanging(self, hanging: HangingTransaction, *, cluster_secret: bytes) -> None:
        """Make the leader of a partition write an abort marker for an open transaction that `find_hanging` found there.

        If some transactional id has the transaction open, it is aborted in all its partitions.

        Only nodes of the cluster may request this, and clients that prove to know the content of the nodes'
        `cluster.secret.file`. Raises KafkaError: CLUSTER_AUTHORIZATION_FAILED; INVALID_TXN_STATE if the transaction is
        being committed; INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED if it is not the newest of that
        producer any more.
        """
        topic, index = hanging.partition

        async def ask(leader: int, some: list[TopicPartition]) -> dict[TopicPartition, bool | KafkaError]:
            cluster_id = self.session.cluster.metadata.cluster_id or ""
            connection = await self.session.cluster.connection(leader, _OPERATOR_LANE)
            try:
                await prove_operator(connection, cluster_secret, cluster_id, leader)
                response = await connection.request(WriteTxnMarkersRequest(markers=[_abort_of(hanging)]))
            finally:
                connection.close()
            (result,) = response.markers[0].topics[0].partitions
            return dict.fromkeys(some, error_of(result.error_code, None) or True)

        answer = (await ask_leaders(self.session, [hanging.partition], ask))[hanging.partition]
        if isinstance(answer, KafkaError):
            raise KafkaError(answer.code, f"{topic}-{index}: {answer.message}")

    async def _open_in(
        self, partitions: Iterable[TopicPartition], progress: Progress = lambda done, total: None
    ) -> list[HangingTransaction]:
        found: list[HangingTransaction] = []
        for partition, producers in (await self.describe_producers(partitions, progress=progress)).items():
            if isinstance(producers, KafkaError):
                where = f"{partition.topic}-{partition.partition}"
                raise KafkaError(producers.code, f"{where}: {producers.message}")
            found += [
                HangingTransaction(partition, producer)
                for producer in producers
                if producer.transaction_start >= 0
            ]
        return found

    async def _without_owner(self, suspects: set[HangingTransaction]) -> set[HangingTransaction]:
        producer_ids = sorted({suspect.producer.producer_id for suspect in suspects})
        names = {
            listing.producer_id: listing.transactional_id
            for listing in await self.list_transactions(producer_ids=producer_ids)
        }
        described = await self.describe_transactions(names.values())
        return {
            suspect
            for suspect in suspects
            if not _has_open(described.get(names.get(suspect.producer.producer_id, "")), suspect.partition)
        }

    async def _speakers(self, names: Collection[str]) -> dict[int, list[str]]:
        """Return the transactional ids by their coordinator's broker id."""
        request = FindCoordinatorRequest(key_type=TRANSACTION_KEY, coordinator_keys=list(names))
        response = await self.session.cluster.ask_any(request)
        found: dict[int, list[str]] = {}
        for coordinator in response.coordinators:
            check(coordinator.error_code, f"transactional id {coordinator.key!r}", coordinator.error_message)
            self.session.cluster.metadata.learn_broker(
                BrokerAddress(coordinator.node_id, coordinator.host, coordinator.port)
            )
            found.setdefault(coordinator.node_id, []).append(coordinator.key)
        return found


def _listing_request(
    states: Iterable[str],
    producer_ids: Iterable[int],
    open_longer_than_ms: int | None,
    pattern: str | None,
) -> ListTransactionsRequest:
    return ListTransactionsRequest(
        state_filters=list(states),
        producer_id_filters=list(producer_ids),
        duration_filter=_ANY_DURATION if open_longer_than_ms is None else open_longer_than_ms,
        transactional_id_pattern=pattern,
    )


def _abort_of(hanging: HangingTransaction) -> WritableTxnMarker:
    topic, index = hanging.partition
    producer = hanging.producer
    return WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[index])],
        # Kafka's tool does the same if the partition knows of no marker of this producer.
        coordinator_epoch=max(producer.coordinator_epoch, 0),
    )


def _has_open(description: TransactionDescription | KafkaError | None, partition: TopicPartition) -> bool:
    return isinstance(description, TransactionDescription) and partition in description.partitions


def _described(state: DescribedTransaction, coordinator: int) -> TransactionDescription:
    return TransactionDescription(
        state.transactional_id,
        state.transaction_state,
        state.producer_id,
        state.producer_epoch,
        state.transaction_timeout_ms,
        state.transaction_start_time_ms,
        tuple(TopicPartition(topic.topic, index) for topic in state.topics for index in topic.partitions),
        state.app_version,
        coordinator,
    )


def _producer(state: ProducerState) -> ProducerDescription:
    return ProducerDescription(
        state.producer_id,
        state.producer_epoch,
        state.last_sequence,
        state.last_timestamp,
        state.coordinator_epoch,
        state.current_txn_start_offset,
    )
