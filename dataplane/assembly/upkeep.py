"""Work on a broker's logs, independent of requests: checkpoints, retention, verification, compaction."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from ..broker_settings import BrokerSettings
from ..configuration.config import BrokerConfig
from ..groups.committed_reads import CommittedReads
from ..mirroring.compaction_hold import held_from
from ..quorum.config import MetadataPosition
from ..quorum.session import QuorumSession
from ..replication.replica.partition import Partition
from ..replication.replicas.replicas import Replicas
from ..runtime.clocks import wall_ms
from ..runtime.periodic import PeriodicWork
from ..storage import metadata_position
from ..storage.log_cleaner import CleanerSettings, LogCleaner
from ..storage.log_store import LogStore
from ..storage.log_upkeep import LogUpkeep
from ..storage.log_verifier import LogVerifier
from ..storage.table_holds import TableHolds

_CHECKPOINT_INTERVAL_S = 60.0


class Upkeep:
    """The upkeep of all logs of a broker. Blocking work is done in threads or in a child process."""

    def __init__(
        self,
        config: BrokerConfig,
        settings: BrokerSettings,
        session: QuorumSession,
        logs: LogStore,
        replicas: Replicas,
        committed: CommittedReads,
    ) -> None:
        """`committed` has the offsets that the lake's tables still need."""
        self.cleaner = LogCleaner(CleanerSettings.of(settings), replicas, wall_ms, self._held_from)
        self._replicas = replicas
        self.table_holds: TableHolds[Partition] = TableHolds(committed.read, self._leads)
        self._log_upkeep = LogUpkeep(
            replicas, self.table_holds, self.keep_log_starts, config.retention_check_interval_ms, wall_ms
        )
        self._verifier: LogVerifier[Partition] = LogVerifier(
            lambda: replicas,
            replicas.damage.condemn,
            config.verify_bytes_per_second,
            config.retention_check_interval_ms,
        )
        self._session = session
        self._logs = logs
        self._producers_expire_s = config.producer_id_expiration_check_interval_ms / 1000
        self._written_position: MetadataPosition | None = None

    def periodic_work(self) -> Iterator[PeriodicWork]:
        """Yield the periodic work: writing checkpoints, and forgetting expired producers."""
        yield PeriodicWork("log checkpoints", _CHECKPOINT_INTERVAL_S, self._checkpoint)
        yield PeriodicWork("expiry of producers", self._producers_expire_s, self._logs.expire_producers)

    def start(self) -> None:
        """Start retention, verification and compaction."""
        self._log_upkeep.start()
        self._verifier.start()
        self.cleaner.start()

    async def close(self) -> None:
        """Stop retention, verification and compaction, once the disk has answered."""
        await self._log_upkeep.close()
        await self._verifier.close()
        await self.cleaner.close()

    def _held_from(self, topic: str, index: int) -> int | None:
        partition = self._replicas.find(topic, index)
        return None if partition is None else held_from(self._replicas.image, partition)

    def _leads(self, partition: Partition) -> bool:
        return partition.leader is not None and self._replicas.holds(partition)

    async def keep_log_starts(self) -> None:
        """Make the log start offsets durable, since records below them must not return."""
        await asyncio.wrap_future(self._logs.checkpoint_log_starts())

    async def write_position(self) -> None:
        """Write the position up to which this broker has followed the metadata, if it has moved."""
        position = self._session.position
        if position.offset > 0 and position != self._written_position:
            self._written_position = position
            folders = [directory.path for directory in self._logs.usable]
            await asyncio.to_thread(metadata_position.write, folders, position)

    async def _checkpoint(self) -> None:
        await asyncio.wrap_future(self._logs.checkpoint())
        await self.write_position()
