"""The handlers of producers' requests other than Produce: identities and transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..cluster.internal_topics import OFFSETS_TOPIC
from ..cluster.topic_creation import TopicCreator
from ..configuration.config import BrokerConfig
from ..groups.coordinator import GroupCoordinator
from ..handlers.abort_transaction import AbortTransactionHandlers
from ..handlers.add_to_txn import AddToTxnHandlers
from ..handlers.app_versions import AppVersionHandlers
from ..handlers.cuts import CutHandlers
from ..handlers.delete_transactional_id import DeleteTransactionalIdHandlers
from ..handlers.describe_transactions import DescribeTransactionsHandlers
from ..handlers.end_txn import EndTxnHandlers
from ..handlers.init_producer_id import InitProducerIdHandlers
from ..handlers.shared_transactions import SharedTransactionHandlers
from ..handlers.txn_offset_commit import TxnOffsetCommitHandlers
from ..handlers.write_txn_markers import WriteTxnMarkersHandlers
from ..quorum.session import QuorumSession
from ..replication.replicas.replicas import Replicas
from ..runtime.clocks import wall_ms
from ..transactions.announced_offsets import AnnouncedOffsets
from ..transactions.client_commands import ClientOrigins
from ..transactions.participant import TransactionParticipant
from ..transactions.producer_ids import ProducerIds, blocks_from
from ..transactions.tokens import TransactionTokens


def transaction_handlers(
    config: BrokerConfig,
    session: QuorumSession,
    replicas: Replicas,
    groups: GroupCoordinator,
    parts: TransactionParticipant,
    creator: TopicCreator,
    timeout_max_ms: Callable[[], int],
) -> Iterator[object]:
    """Yield the handlers of requests about producer ids and transactions."""
    node_id, completion_waits = config.node_id, parts.completion_waits
    origins = ClientOrigins(node_id, session, wall_ms)
    announced_offsets = AnnouncedOffsets()
    yield InitProducerIdHandlers(ProducerIds(blocks_from(session, node_id)), session, origins, timeout_max_ms)
    yield AddToTxnHandlers(session, origins, lambda: creator.create([OFFSETS_TOPIC]), announced_offsets)
    yield EndTxnHandlers(session, origins, completion_waits, announced_offsets)
    tokens = TransactionTokens(config.quorum.security.cluster, config.cluster_id)
    yield SharedTransactionHandlers(session, origins, completion_waits, tokens, timeout_max_ms)
    yield TxnOffsetCommitHandlers(
        groups,
        replicas,
        parts.pending_writes,
        lambda: session.image,
        wall_ms,
        config.offset_metadata_max_bytes,
    )
    yield WriteTxnMarkersHandlers(replicas, session, parts.markers, completion_waits)
    yield DescribeTransactionsHandlers(node_id, session, session.transactions, wall_ms)
    yield AbortTransactionHandlers(session)
    yield DeleteTransactionalIdHandlers(session)
    yield CutHandlers(replicas, session, session.transactions, parts.catch_up)
    yield AppVersionHandlers(session.app_versions)
