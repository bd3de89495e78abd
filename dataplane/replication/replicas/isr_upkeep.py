"""Upkeep of the ISRs that this broker leads: proposals to the quorum to remove and add members.

While a broker is away, no leadership that it follows is settled. There may be tens of thousands, so a thousand are
checked in each iteration of the event loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping

from ...runtime.change_set import ChangesSince
from ...runtime.steps import SoonCaller, Steps
from ..fetch_values import PartitionKey
from ..leader.follower_sessions import FollowerSessions
from ..leader.isr_updates import IsrUpdates, Submit
from ..replica.partition import Partition
from ..roles.leader import KnownBroker

logger = logging.getLogger(__name__)


class LaggingLeaders:
    """The partitions led here of which some follower lags or is not in the ISR, so that the passage of time may change
    the ISR. Most partitions are idle: their followers have all records, and need no check.
    """

    def __init__(self, moved: ChangesSince[Partition]) -> None:
        self._moved = moved
        self._lagging: dict[Partition, None] = {}

    def look(self) -> Iterator[Partition]:
        """Yield the partitions that have changed since the last call, or had a lagging or missing ISR member when last
        visited.

        Some of them may no longer need that, or are not led here. The caller may continue in later iterations of the
        event loop. Each partition is judged when it is visited; partitions that are not visited come with the next
        call.
        """
        self._lagging |= self._moved.take()
        for partition in list(self._lagging):
            if partition.leader is None or _is_settled(partition):
                self._lagging.pop(partition, None)
            yield partition

    def check(self, partition: Partition) -> None:
        """Check that the partition is among those to be visited, if a follower lags or is not in the ISR. Raises
        AssertionError otherwise.
        """
        is_looked_at = partition in self._lagging or partition in self._moved
        if partition.leader is not None and not is_looked_at and not _is_settled(partition):
            raise AssertionError(f"{partition!r} has followers that lag, and nobody looks at it")


class IsrUpkeep:
    """The upkeep of the ISRs of all partitions that this broker leads: it proposes to the quorum to remove and add
    members. Followers' progress is reported here; `check` handles the passage of time.
    """

    def __init__(
        self,
        moved: ChangesSince[Partition],
        submit: Submit,
        brokers: Callable[[], Mapping[int, KnownBroker]],
        monotonic_ms: Callable[[], int],
        sessions: FollowerSessions,
        loop: SoonCaller,
    ) -> None:
        """`brokers` returns the cluster's brokers by id."""
        self._lagging = LaggingLeaders(moved)
        self._updates = IsrUpdates(submit, self.look_at)
        self._brokers = brokers
        self._monotonic_ms = monotonic_ms
        self._sessions = sessions
        self._steps = Steps(loop)
        self._is_checking = False

    def check(self) -> None:
        """Remove lagging members, add waiting followers, and advance high watermarks that waited for time to pass."""
        if not self._is_checking:
            self._is_checking = True
            self._steps.take_on(self._check_all())

    def _check_all(self) -> Iterator[None]:
        try:
            for partition in self._lagging.look():
                self._check(partition)
                yield
        finally:
            self._is_checking = False

    def _check(self, partition: Partition) -> None:
        leader = partition.leader
        if leader is None:
            return
        proposal = leader.propose_shrink(self._monotonic_ms())
        if proposal is not None:
            logger.info("%r: ISR shrinks to %s", partition, [broker_id for broker_id, _ in proposal.isr])
            self._updates.propose(partition, proposal)
        self.look_at(partition)

    def follower_advanced(self, partition: Partition, broker_id: int) -> None:
        """Propose that a follower joins the ISR, if the records it now has are enough."""
        if partition.leader is not None:
            proposal = partition.leader.propose_expand(broker_id)
            if proposal is not None:
                self._updates.propose(partition, proposal)

    def broker_changed(self, broker_id: int, looked_at: Collection[PartitionKey]) -> None:
        """Offer a place in the ISR to followers after a broker's state has changed.

        If a broker that led thousands of partitions dies, all partitions with a replica there change as well, and were
        `looked_at` already. A replica outside the ISR is a follower of a leadership that is not settled.
        """
        self._steps.take_on(self._look_where_it_is_outside(broker_id, looked_at))

    def _look_where_it_is_outside(
        self, broker_id: int, looked_at: Collection[PartitionKey]
    ) -> Iterator[None]:
        for partition in self._lagging.look():
            leader = partition.leader
            if (
                leader is not None
                and (partition.topic_id, partition.index) not in looked_at
                and broker_id in leader.followers
                and broker_id not in leader.in_sync.maximal
            ):
                self.look_at(partition)
            yield

    def look_at(self, partition: Partition) -> None:
        """Advance the partition's high watermark, and let eligible followers join its ISR, after another proposal was
        settled, time has passed, or a broker's state has changed.
        """
        partition.advance()
        self.offer_places(partition)

    def offer_places(self, partition: Partition) -> None:
        """Propose to the quorum that eligible followers join the partition's ISR. A fenced follower may not join; it is
        offered a place once it is back.
        """
        leader = partition.leader
        if leader is None:
            return
        in_sync, brokers = leader.in_sync.maximal, self._brokers()
        for broker_id in [follower_id for follower_id in leader.followers if follower_id not in in_sync]:
            broker = brokers.get(broker_id)
            if broker is not None and not broker.fenced:
                self._sessions.offer(broker_id, (partition.topic_id, partition.index))

    def verify(self, partition: Partition) -> None:
        """Check that the partition is among those that `check` visits, if a follower lags or is not in its ISR. Raises
        AssertionError otherwise.
        """
        self._lagging.check(partition)

    async def close(self) -> None:
        """Stop proposing."""
        self._steps.close()
        await self._updates.close()


def _is_settled(partition: Partition) -> bool:
    leader = partition.leader
    return leader is not None and leader.is_settled and not partition.record_deletion.waiting
