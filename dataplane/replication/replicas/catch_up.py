"""The replication throttles of one broker (KIP-73): a rate limit for bytes sent to followers that catch up, and another
for bytes fetched to catch up.
"""

from __future__ import annotations

from collections.abc import Callable

from ....protocol.cluster.cluster_image import ClusterImage
from ..replica.partition import Partition
from ..throttle import Throttle, is_held, rate_of

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"


class CatchUpThrottles:
    """The replication throttles of one broker. `leader` limits the bytes sent in fetch sessions of followers. The
    methods limit the bytes that this broker itself fetches.

    `now_s`: the loop's clock.
    """

    def __init__(self, broker_id: int, now_s: Callable[[], float], image: Callable[[], ClusterImage]) -> None:
        self.leader = Throttle(now_s)
        self._follower = Throttle(now_s)
        self._broker_id = broker_id
        self._image = image

    def reconfigure(self) -> None:
        """Apply the rates that are configured for this broker in the cluster image."""
        configs = self._image().configs
        self.leader.set_rate(rate_of(configs, self._broker_id, LEADER_RATE))
        self._follower.set_rate(rate_of(configs, self._broker_id, FOLLOWER_RATE))

    def limit(self, partition: Partition) -> int | None:
        """Return the number of bytes that this broker may now fetch of the partition: None without a limit, 0 if the
        partition must wait.
        """
        if not self._follower.limited:
            return None
        topic = self._image().topics_by_id.get(partition.topic_id)
        state = None if topic is None else topic.partitions.get(partition.index)
        throttled = partition.settings.follower_throttled
        if state is None or not is_held(throttled, partition.index, self._broker_id, state.isr):
            return None
        return self._follower.allowance()

    def wait_s(self) -> float:
        """Return the seconds until the throttle permits further bytes of throttled partitions."""
        return self._follower.wait_s()

    def spend(self, size: int) -> None:
        """Subtract `size` fetched bytes of a throttled partition from the permitted amount."""
        self._follower.spend(size)
