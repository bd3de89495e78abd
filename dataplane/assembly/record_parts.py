"""The parts that serve the records of partitions to producers, consumers and followers."""

from __future__ import annotations

from collections.abc import Iterator

from ..configuration.config import BrokerConfig
from ..handlers.describe_producers import DescribeProducersHandlers
from ..handlers.fetch import FetchHandlers
from ..handlers.list_offsets import ListOffsetsHandlers
from ..handlers.offset_for_leader_epoch import OffsetForLeaderEpochHandlers
from ..handlers.produce import ProduceHandlers
from ..replication.replicas.replicas import Replicas
from ..server import Server
from ..transactions.participant import TransactionParticipant


class RecordParts:
    """The handlers of Produce, Fetch and related requests about the records of partitions."""

    def __init__(
        self,
        config: BrokerConfig,
        server: Server,
        replicas: Replicas,
        transactions: TransactionParticipant,
    ) -> None:
        self._replicas = replicas
        self.fetches = FetchHandlers(
            replicas,
            server.purgatory,
            config.fetch,
            server.quotas,
        )
        self.produces = ProduceHandlers(
            replicas, server.purgatory, transactions.pending_writes, server.quotas
        )

    def handlers(self) -> Iterator[object]:
        """Yield the handlers of requests that write, read or describe records."""
        yield self.produces
        yield self.fetches
        yield ListOffsetsHandlers(self._replicas)
        yield OffsetForLeaderEpochHandlers(self._replicas)
        yield DescribeProducersHandlers(self._replicas)
