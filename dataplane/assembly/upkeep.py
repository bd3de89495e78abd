"""Periodic work of a broker, independent of requests: checkpoints, retention, verification, compaction."""

from __future__ import annotations

import asyncio

from ..broker_settings import BrokerSettings
from ..configuration.config import BrokerConfig
from ..groups.coordinator import GroupCoordinator
from ..mirroring.compaction_hold import held_from
from ..quorum.config import MetadataPosition
from ..quorum.session import QuorumSession
from ..replication.replica.partition import Partition
from ..replication.replicas.replicas import Replicas
from ..runtime.clocks import wall_ms
from ..storage import metadata_position
from ..storage.log_cleaner import CleanerSettings, LogCleaner
from ..storage.log_store import LogStore
from ..storage.log_upkeep import LogUpkeep
from ..storage.log_verifier import LogVerifier

_CHECKPOINT_INTERVAL_S = 60.0


class Upkeep:
    """Six tasks of the event loop. Each does its blocking work in threads or in a child process."""

    def __init__(
        self,
        config: BrokerConfig,
        settings: BrokerSettings,
        session: QuorumSession,
        logs: LogStore,
        replicas: Replicas,
        groups: GroupCoordinator,
    ) -> None:
        self.cleaner = LogCleaner(CleanerSettings.of(settings), replicas, wall_ms, self._held_from)
        self._replicas = replicas
        self._log_upkeep = LogUpkeep(
            replicas, self.keep_log_starts, config.retention_check_interval_ms, wall_ms
        )
        self._verifier: LogVerifier[Partition] = LogVerifier(
            lambda: replicas,
            replicas.damage.condemn,
            config.verify_bytes_per_second,
            config.retention_check_interval_ms,
        )
        self._session = session
        self._logs = logs
        self._groups = groups
        self._producers_expire_s = config.producer_id_expiration_check_interval_ms / 1000
        self._groups_expire_s = config.offsets_retention_check_interval_ms / 1000
        self._tasks: list[asyncio.Task[None]] = []
        self._written_position: MetadataPosition | None = None

    def start(self) -> None:
        """Start all tasks."""
        self._tasks = [
            asyncio.create_task(self._checkpoint_for_ever(), name="log checkpoints"),
            asyncio.create_task(self._expire_producers_for_ever(), name="expiry of producers"),
            asyncio.create_task(self._expire_groups_for_ever(), name="expiry of groups"),
        ]
        self._log_upkeep.start()
        self._verifier.start()
        self.cleaner.start()

    async def close(self) -> None:
        """Stop all tasks, once the disk has answered."""
        for task in self._tasks:
            task.cancel()
        await self._log_upkeep.close()
        await self._verifier.close()
        await self.cleaner.close()

    def _held_from(self, topic: str, index: int) -> int | None:
        partition = self._replicas.find(topic, index)
        return None if partition is None else held_from(self._replicas.image, partition)

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

    async def _checkpoint_for_ever(self) -> None:
        while True:
            await asyncio.sleep(_CHECKPOINT_INTERVAL_S)
            await asyncio.wrap_future(self._logs.checkpoint())
            await self.write_position()

    async def _expire_producers_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._producers_expire_s)
            await self._logs.expire_producers()

    async def _expire_groups_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._groups_expire_s)
            self._groups.expire()
