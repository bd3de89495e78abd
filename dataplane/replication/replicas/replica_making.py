"""Creation of replicas: finds or creates their logs, a few in each iteration of the event loop, and retries after a
disk error."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from ....protocol.errors import KafkaError
from ..fetch_values import PartitionKey
from ..replica.partition import Partition
from .log_removals import LogRemovals
from .offline import OfflineReplicas

if TYPE_CHECKING:
    from ....protocol.cluster.cluster_image import TopicState
    from ...log import LogConfig, PartitionLog
    from ..replica.dependencies import HostBroker
    from ..replica.settings import TopicSettings

logger = logging.getLogger(__name__)

_PER_TURN = 16
_KEPT_FREE = 4
"""Number of these reserved for replicas that were just announced, so that a new topic need not wait for thousands of
others."""


class ReplicaLogs(Protocol):
    """The store of this broker's logs in all its data folders."""

    def get(self, topic: str, topic_id: bytes, index: int) -> PartitionLog | None:
        """Return the existing log of this topic id; None if there is none."""

    def create(self, topic: str, topic_id: bytes, index: int, config: LogConfig) -> PartitionLog: ...
    def delete(self, topic: str, topic_id: bytes, index: int) -> None: ...
    def condemn(self, topic: str, topic_id: bytes, index: int, error: KafkaError) -> None:
        """Close a log that is damaged; from now on `get` raises `error`."""

    def set_damaged_aside(self, topic: str, topic_id: bytes, index: int) -> None:
        """Rename the folder of a damaged log, so that a new log can be created. Raises KafkaError if that fails."""

    def high_watermark(self, topic: str, index: int) -> int:
        """Return the high watermark of the last checkpoint; 0 if there is none."""

    def checkpoint_high_watermarks(self, moved: Mapping[tuple[str, int], int]) -> None:
        """Write a checkpoint of all high watermarks; `moved` contains those that may have changed since the last
        call."""


class ReplicaMaking:
    """The creation of replicas: the queue of replicas to be created, and the replicas whose log could not be created.
    `damaged` is called for logs that exist but cannot be used. `look` is called with the partitions to be created now.
    """

    def __init__(
        self,
        logs: ReplicaLogs,
        broker: HostBroker[Partition],
        settings_of: Callable[[str], TopicSettings],
        offline: OfflineReplicas,
        damaged: Callable[[PartitionKey], None],
        look: Callable[[set[PartitionKey]], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._logs = logs
        self._broker = broker
        self._settings_of = settings_of
        self._offline = offline
        self._damaged = damaged
        self._look = look
        self._to_make: dict[PartitionKey, None] = {}
        self._left = _PER_TURN
        """Number of replicas that may still be created in this loop iteration, since the feed may announce more in
        several pieces."""
        self._turn_comes = False
        self._without_log: set[PartitionKey] = set()
        self.removals = LogRemovals(logs, self._loop)

    def is_to_be_made(self, key: PartitionKey) -> bool:
        """Return whether the replica is going to be created in a later loop iteration."""
        return key in self._to_make

    def postponed(self, new: Collection[PartitionKey]) -> Collection[PartitionKey]:
        """Queue the new replicas that exceed the number for this loop iteration, and return them in order. They are
        created in later iterations.

        Creating a log takes about a millisecond, and thousands may be needed at once. Until a replica exists, clients
        are asked to retry.
        """
        later = list(islice(new, self._left, None))
        self._left -= len(new) - len(later)
        self._to_make.update(dict.fromkeys(later))
        if not self._turn_comes:
            self._turn_comes = True
            self._loop.call_soon(self._next_turn)
        return later

    def _next_turn(self) -> None:
        self._left = _PER_TURN
        batch = set(islice(self._to_make, _PER_TURN - _KEPT_FREE))
        self._turn_comes = bool(batch)
        if not batch:
            return
        for key in batch:
            del self._to_make[key]
        self._loop.call_soon(self._next_turn)
        self._look(batch)

    def make(self, topic: TopicState, index: int) -> Partition | None:
        """Create the replica. Returns None if it has no log for now, or is offline since its log is damaged."""
        key = (topic.id, index)
        self.removals.now(topic.name, index)
        settings = self._settings_of(topic.name)
        try:
            partition_log = self._logs.get(topic.name, topic.id, index)
            if partition_log is None:
                partition_log = self._logs.create(topic.name, topic.id, index, settings.log)
            elif partition_log.failure is not None:
                raise partition_log.failure
            partition_log.config = settings.log
        except (OSError, KafkaError) as error:
            logger.error("no log for %s-%d, this replica is offline: %s", topic.name, index, error)
            if isinstance(error, OSError) or isinstance(error.__cause__, OSError):
                self._without_log.add(key)
            else:
                # Damage does not pass without a repair.
                self._offline.add([key])
                self._damaged(key)
            return None
        return Partition(
            topic.name,
            topic.id,
            index,
            partition_log,
            self._broker,
            settings.replication,
            self._logs.high_watermark(topic.name, index),
        )

    @property
    def without_log(self) -> frozenset[PartitionKey]:
        """Replicas whose logs could not be created, and may be later."""
        return frozenset(self._without_log)

    def lost(self, key: PartitionKey) -> None:
        """Stop retrying to create the log of a replica that is offline."""
        self._without_log.discard(key)

    def look_for_missing_logs(self) -> None:
        """Retry to create the replicas whose log could not be created, since a full disk may have free space again."""
        if self._without_log:
            missing, self._without_log = self._without_log, set()
            self._look(missing)
