"""All that producers ask for besides Produce: their identities, and everything about transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .cluster.topic_creation import TopicCreator
from .configuration.config import BrokerConfig
from .groups.coordinator import OFFSETS_TOPIC, GroupCoordinator
from .handlers.add_to_txn import TransactionHandlers
from .handlers.cuts import CutHandlers
from .handlers.describe_transactions import TransactionDescriptionHandlers
from .handlers.init_producer_id import ProducerHandlers, ProducerIds, blocks_from
from .handlers.shared_transactions import SharedTransactionHandlers
from .handlers.txn_offset_commit import TransactionalOffsetHandlers
from .handlers.write_txn_markers import TransactionMarkerHandlers
from .quorum.session import QuorumSession
from .replication.replicas.dependencies import wall_ms
from .replication.replicas.replicas import Replicas
from .transactions.client_commands import TransactionClients
from .transactions.participant import Transactions
from .transactions.tokens import TransactionTokens


def transaction_handlers(
    config: BrokerConfig,
    session: QuorumSession,
    replicas: Replicas,
    groups: GroupCoordinator,
    parts: Transactions,
    creator: TopicCreator,
    timeout_max_ms: Callable[[], int],
) -> Iterator[object]:
    """Each to be registered."""
    node_id, commands = config.node_id, parts.commands
    clients = TransactionClients(node_id, commands, parts.endings, wall_ms)
    transactional = TransactionHandlers(
        lambda: session.image, clients, timeout_max_ms, lambda: creator.create([OFFSETS_TOPIC])
    )
    yield transactional
    yield ProducerHandlers(ProducerIds(blocks_from(session, node_id)), transactional)
    tokens = TransactionTokens(config.quorum.secret, config.cluster_id)
    yield SharedTransactionHandlers(clients, tokens, timeout_max_ms)
    yield TransactionalOffsetHandlers(
        groups, replicas, parts.gate, lambda: session.image, wall_ms, config.offset_metadata_max_bytes
    )
    yield TransactionMarkerHandlers(replicas, lambda: session.image, commands, parts.markers, parts.endings)
    yield TransactionDescriptionHandlers(
        node_id, lambda: session.image, session.transactions, commands, wall_ms
    )
    yield CutHandlers(node_id, replicas, lambda: session.image, session.transactions, commands)
