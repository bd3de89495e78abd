"""The quorum leader's treatment of a leaving broker while the command for it is in progress."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from ottla.metadata_quorum.leader_duties import LeaderCommand, LeaderDuties, Wish
from ottla.metadata_quorum.liveness import Heartbeat, ProgressTable, ReplicaProgress, SessionTracker
from ottla.protocol.cluster.cluster_image import BrokerState, ClusterImage, PartitionState, TopicState
from ottla.protocol.messages.broker_commands import BeginControlledShutdown, FenceBroker

TOPIC, LEAVING = b"t" * 16, 1
PARTITIONS = 100


class CountedLooks(ProgressTable):
    """A table that counts the examined partitions."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0

    def at(self, partition: tuple[bytes, int]) -> Mapping[int, ReplicaProgress]:
        self.looks += 1
        return super().at(partition)


class Leader:
    """The leader's duties, and its proposed commands, none of which has an outcome yet."""

    def __init__(self) -> None:
        self.image = ClusterImage()
        self.image.cluster_id = "c"
        for broker_id in (1, 2, 3):
            self.image.brokers[broker_id] = BrokerState(broker_id, broker_id, bytes(16), fenced=False)
        states = {index: PartitionState((1, 2, 3), (1, 2, 3), leader=LEAVING) for index in range(PARTITIONS)}
        self.image.topics["t"] = self.image.topics_by_id[TOPIC] = TopicState(TOPIC, "t", states)
        self.proposed: list[tuple[LeaderCommand, Callable[[], None]]] = []
        self.duties = LeaderDuties(
            lambda: self.image,
            SessionTracker(timeout_s=3.0),
            lambda command, done: self.proposed.append((command, done)),
            cluster_id="c",
            imbalance_check_interval_s=1e9,
        )
        self.progress = self.duties.progress = CountedLooks()
        self.duties.lead(0.0)

    def asks_to_stop(self) -> None:
        heartbeat = Heartbeat(LEAVING, LEAVING, bytes(16), 0, 0.0)
        assert self.duties.heard(heartbeat, 0.1)
        assert not self.duties.wishes(heartbeat, Wish(unfence=False, shut_down=True), 0.1)

    def is_gone(self) -> None:
        self.duties.fence(LEAVING, LEAVING)


@pytest.mark.parametrize(
    ("leaves", "command"), [(Leader.asks_to_stop, BeginControlledShutdown), (Leader.is_gone, FenceBroker)]
)
def test_what_it_leads_is_looked_at_once(
    leaves: Callable[[Leader], None], command: type[LeaderCommand]
) -> None:
    """This takes 50 ms or more with 11,000 partitions, and would delay every heartbeat and tick meanwhile."""
    leader = Leader()
    for _ in range(10):
        leaves(leader)
    assert [type(proposal) for proposal, _ in leader.proposed] == [command]
    assert leader.progress.looks == PARTITIONS

    _, done = leader.proposed.pop()
    done()  # The command failed, according to the image, so it is proposed again.
    leaves(leader)
    assert [type(proposal) for proposal, _ in leader.proposed] == [command]
    assert leader.progress.looks == 2 * PARTITIONS
