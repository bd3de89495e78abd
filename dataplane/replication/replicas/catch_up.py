"""The throttles of one broker: the bytes that it sends to followers that catch up, and the bytes that it fetches to
catch up."""

from __future__ import annotations

from collections.abc import Callable

from ....protocol.cluster.cluster_image import ClusterImage
from ..replica.partition import Partition
from ..throttle import Throttle, is_held, rate_of

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"


class CatchUpThrottles:
    """The throttles of one broker. `leader` limits the fetch sessions of followers; the methods limit this broker's own
    fetches.

    `now_s`: the loop's clock.
    """

    def __init__(self, broker_id: int, now_s: Callable[[], float], image: Callable[[], ClusterImage]) -> None:
        self.leader = Throttle(now_s)
        self._follower = Throttle(now_s)
        self._broker_id = broker_id
        self._image = image

    def reconfigure(self) -> None:
        """Take the configured rates."""
        configs = self._image().configs
        self.leader.set_rate(rate_of(configs, self._broker_id, LEADER_RATE))
        self._follower.set_rate(rate_of(configs, self._broker_id, FOLLOWER_RATE))

    def limit(self, partition: Partition) -> int | None:
        """Return the number of bytes that may be fetched of a partition now; None if it is not throttled, 0 if it must
        wait."""
        if not self._follower.limited:
            return None
        topic = self._image().topics_by_id.get(partition.topic_id)
        state = None if topic is None else topic.partitions.get(partition.index)
        throttled = partition.settings.follower_throttled
        if state is None or not is_held(throttled, partition.index, self._broker_id, state.isr):
            return None
        return self._follower.allowance()

    def wait_s(self) -> float:
        """Return the seconds until something may be fetched again."""
        return self._follower.wait_s()

    def spend(self, size: int) -> None:
        """Count received bytes of a throttled partition."""
        self._follower.spend(size)
