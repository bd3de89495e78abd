"""The parts that maintain data folders and the logs in them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ..broker_settings import BrokerSettings
from ..configuration.config import BrokerConfig
from ..groups.committed_reads import CommittedReads
from ..handlers.delete_records import DeleteRecordsHandlers
from ..handlers.log_dirs import LogDirHandlers
from ..quorum.session import QuorumSession
from ..replication.replicas.folder_moves import FolderMoves
from ..replication.replicas.replicas import Replicas
from ..runtime.clocks import wall_ms
from ..storage.folder_settings import move_bytes_per_second
from ..storage.log_store import LogStore
from .room_watch import RoomWatch
from .running_settings import CleanerSettingsInForce, CordonsInForce
from .storage_failures import StorageFailures
from .upkeep import Upkeep


class StorageParts:
    """The parts for data folders: failed and full folders, moves of replicas between folders, cordoned folders, and the
    upkeep of logs.
    """

    def __init__(
        self,
        config: BrokerConfig,
        settings: BrokerSettings,
        session: QuorumSession,
        logs: LogStore,
        replicas: Replicas,
        committed: CommittedReads,
    ) -> None:
        self._logs = logs
        self._replicas = replicas
        self.cordons = CordonsInForce(config, settings, logs)
        self.failures = StorageFailures(logs, replicas, lambda: session.image)
        self.room = RoomWatch(logs, replicas)
        self.moves = FolderMoves(replicas, logs, partial(move_bytes_per_second, settings), wall_ms)
        self.upkeep = Upkeep(config, settings, session, logs, replicas, committed)
        self.cleaner_settings = CleanerSettingsInForce(settings, self.upkeep.cleaner)

    def handlers(self) -> Iterator[object]:
        """Yield the handlers of DeleteRecords and of requests about data folders."""
        yield DeleteRecordsHandlers(self._replicas, self.upkeep.keep_log_starts)
        yield LogDirHandlers(self._logs, self.moves)
