"""Handling of replicas with damaged logs, whether found at the start, by a reader, or by verification."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ....protocol.cluster.cluster_image import NO_LEADER
from ....protocol.errors import KafkaError
from ..fetch_values import PartitionKey
from ..leader.rechecks import Rechecks
from ..replica.partition import Partition
from .offline import OfflineReplicas
from .rebuilding import Rebuild, Rebuilding
from .replica_making import ReplicaLogs

if TYPE_CHECKING:
    from ....protocol.cluster.cluster_image import ClusterImage

logger = logging.getLogger(__name__)


class Damage:
    """The damaged replicas: they are taken offline, and rebuilt if other brokers have the data."""

    def __init__(
        self,
        broker_id: int,
        logs: ReplicaLogs,
        offline: OfflineReplicas,
        renew: Rebuild,
        *,
        image: Callable[[], ClusterImage],
        is_held: Callable[[Partition], bool],
        take_offline: Callable[[Iterable[PartitionKey]], None],
        look_again: Callable[[PartitionKey], None],
    ) -> None:
        """`is_held` returns whether an object is still the replica of its partition. `look_again` is called for a
        replica that can be made now."""
        self._broker_id = broker_id
        self._logs = logs
        self._offline = offline
        self._image = image
        self._take_offline = take_offline
        self._look_again = look_again
        self.rebuilding = Rebuilding(renew, self._is_renewable, self._begin, look_again)
        self.rechecks = Rechecks(is_held, self.condemn)
        self._made_anew: set[PartitionKey] = set()

    def found(self, key: PartitionKey) -> None:
        """Rebuild a replica that is offline because its log is damaged. A process rebuilds each replica only once: if
        the disk damages the new log as well, the logs set aside would fill it."""
        if key in self._made_anew:
            logger.error(
                "a replica of topic %s, partition %d, is damaged again: it stays offline",
                key[0].hex(),
                key[1],
            )
            return
        self.rebuilding.add(key)

    def condemn(self, partition: Partition, error: KafkaError) -> None:
        """Take a replica with a damaged log offline and rebuild it, unless its log may be the only complete one."""
        leader, follower = partition.leader, partition.follower
        others = leader is not None and len(leader.in_sync.committed) > 1
        if not others and (follower is None or follower.leader_id == NO_LEADER):
            logger.error(
                "%r is damaged, and nobody else is known to have all of it: %s", partition, error.message
            )
            return
        logger.error("%r is damaged and goes offline: %s", partition, error.message)
        key = (partition.topic_id, partition.index)
        self._take_offline([key])
        self._logs.condemn(partition.topic, partition.topic_id, partition.index, error)
        self.found(key)
        self.rebuilding.look()

    def _is_renewable(self, key: PartitionKey) -> bool:
        topic = self._image().topics_by_id.get(key[0])
        state = None if topic is None else topic.partitions.get(key[1])
        own = self._broker_id
        return (
            state is not None
            and own in state.offline_replicas
            and own not in state.isr
            and state.leader not in (NO_LEADER, own)
        )

    def _begin(self, key: PartitionKey) -> None:
        """Begin with an empty log, now that the quorum no longer counts on the damaged one."""
        topic = self._image().topics_by_id.get(key[0])
        if topic is None:
            return
        try:
            self._logs.set_damaged_aside(topic.name, topic.id, key[1])
        except KafkaError as error:
            logger.error("%s-%d stays offline, its log cannot be set aside: %s", topic.name, key[1], error)
            self._offline.again(key)
            return
        self._made_anew.add(key)
        self._offline.discard(key)
        self._look_again(key)

    async def close(self) -> None:
        """Stop all checks of logs for damage. Returns once the disk has answered."""
        self.rebuilding.close()
        await self.rechecks.close()
