"""The leader's own commands: fencing, unfencing, permitting a broker to stop, electing preferred leaders."""

from collections.abc import Callable

from ottla.metadata_quorum.leader_duties import LeaderCommand, LeaderDuties, Wish
from ottla.metadata_quorum.liveness import Heartbeat, ReplicaProgress, SessionTracker
from ottla.protocol.cluster.cluster_image import BrokerState, ClusterImage, PartitionState, TopicState
from ottla.protocol.cluster.partition_change import PartitionChange
from ottla.protocol.credentials.delegation_tokens import TokenState
from ottla.protocol.features import (
    MIRROR,
    MIRROR_WITH_OFFSETS,
    PLACEMENT,
    PLACEMENT_IN_TURNS,
    SECURITY,
    SHARE,
    SHARE_ABILITIES,
    SHARE_ORDERED,
    SHARE_SERVED,
)
from ottla.protocol.messages.broker_commands import BeginControlledShutdown, FenceBroker, UnfenceBroker
from ottla.protocol.messages.cluster_commands import FormCluster, InitialFeature
from ottla.protocol.messages.metadata_records import TopicRemovedRecord
from ottla.protocol.messages.partition_commands import ElectLastKnown, ElectLeaders
from ottla.protocol.messages.token_commands import RemoveExpiredTokens

TOPIC = b"t" * 16
READY, STOPPING, WAITING = Wish(True, False), Wish(True, True), Wish(False, False)


class World:
    """A modifiable image, and the proposals of the duties."""

    def __init__(self, **partitions: PartitionState) -> None:
        self.image = ClusterImage()
        self.image.cluster_id = "c"
        self.image.offset = 10
        topic = TopicState(TOPIC, "t", {int(name[1:]): state for name, state in partitions.items()})
        self.image.topics["t"] = self.image.topics_by_id[TOPIC] = topic
        for broker_id in (1, 2, 3):
            self.broker(broker_id, fenced=False)
        self.wall_ms = 1_700_000_000_000
        self.proposed: list[LeaderCommand] = []
        self.outcomes: list[Callable[[], None]] = []
        self.duties = LeaderDuties(
            lambda: self.image,
            SessionTracker(timeout_s=3.0),
            self._propose,
            cluster_id="c",
            imbalance_check_interval_s=300,
            wall_ms=lambda: self.wall_ms,
        )

    def _propose(self, command: LeaderCommand, done: Callable[[], None]) -> None:
        self.proposed.append(command)
        self.outcomes.append(done)

    def broker(self, broker_id: int, *, fenced: bool, shutting_down: bool = False) -> None:
        self.image.brokers[broker_id] = BrokerState(
            broker_id, broker_id, bytes([broker_id]) * 16, fenced=fenced, shutting_down=shutting_down
        )
        self.image.offset += 1

    def becomes(self, partition: int, state: PartitionState) -> None:
        """Change a partition as by a command."""
        self.image.set_partition(TOPIC, partition, state)
        self.duties.noted([], 0.1, [PartitionChange(TOPIC, partition, state)])

    def beat(self, broker_id: int, wish: Wish, now: float, offset: int | None = None) -> bool:
        heartbeat = Heartbeat(
            broker_id,
            broker_id,
            bytes([broker_id]) * 16,
            self.image.offset if offset is None else offset,
            0.0,
        )
        return self.duties.heard(heartbeat, now) and self.duties.wishes(heartbeat, wish, now)


def test_the_first_leader_forms_the_cluster() -> None:
    world = World()
    world.image.cluster_id = ""
    world.duties.lead(0.0)
    # ACLs, mirrors, hosts and share groups need features, which clusters that come into being now have at once.
    features = [
        InitialFeature(feature=SECURITY, level=2),
        InitialFeature(feature=MIRROR, level=MIRROR_WITH_OFFSETS),
        InitialFeature(feature=PLACEMENT, level=PLACEMENT_IN_TURNS),
        InitialFeature(feature=SHARE, level=SHARE_SERVED),
        InitialFeature(feature=SHARE_ABILITIES, level=SHARE_ORDERED),
    ]
    assert world.proposed == [FormCluster(cluster_id="c", features=features)]


def test_a_silent_broker_is_fenced_once_with_what_is_known_of_its_partitions() -> None:
    everywhere = (1, 2, 3)
    world = World(
        p0=PartitionState(everywhere, everywhere, leader=1),
        p1=PartitionState(everywhere, everywhere, leader=2),
    )
    world.duties.lead(0.0)
    for partition in (0, 1):
        world.duties.progress.note(ReplicaProgress(TOPIC, partition, 2, 4, 100))
        world.duties.progress.note(ReplicaProgress(TOPIC, partition, 3, 4, 90))
    for now in (1.0, 2.0, 3.0, 4.0, 5.0):
        world.beat(2, READY, now)
        world.beat(3, READY, now)
        world.duties.tick(now)
    (command,) = world.proposed
    assert isinstance(command, FenceBroker)
    assert (command.broker_id, command.broker_epoch) == (1, 1)
    assert command.now_ms == 1_700_000_000_000
    assert [(entry.partition, entry.log_end_offset) for entry in command.progress] == [(0, 100), (0, 90)]
    world.outcomes[0]()
    world.duties.tick(5.1)
    assert len(world.proposed) == 2


def test_followers_propose_nothing() -> None:
    world = World()
    world.duties.tick(100.0)
    world.duties.fence(1, 1)
    assert not world.beat(1, STOPPING, 100.0)
    world.duties.lead(100.0)
    world.duties.follow()
    world.duties.tick(200.0)
    assert world.proposed == []


def test_unfencing_needs_a_live_session_the_wish_and_an_image_past_the_fence() -> None:
    world = World()
    world.duties.lead(0.0)
    world.broker(1, fenced=True)
    world.duties.image_changed(0.0)
    world.beat(1, WAITING, 0.1)
    world.beat(1, READY, 0.1, offset=world.image.offset - 1)
    assert world.proposed == []
    world.beat(1, READY, 0.2)
    world.beat(1, READY, 0.3)
    assert world.proposed == [UnfenceBroker(broker_id=1, broker_epoch=1)]


def test_a_controlled_shutdown_waits_for_leaderships_and_for_the_others_images() -> None:
    world = World(p0=PartitionState((1, 2), (1, 2), leader=1))
    world.duties.lead(0.0)
    world.beat(2, READY, 0.1)
    world.beat(3, READY, 0.1)
    assert not world.beat(1, STOPPING, 0.1)
    (command,) = world.proposed
    assert isinstance(command, BeginControlledShutdown)
    world.broker(1, fenced=False, shutting_down=True)
    world.duties.image_changed(0.2)
    assert not world.beat(1, STOPPING, 0.2)
    world.image.topics["t"].partitions[0] = PartitionState((1, 2), (2,), leader=2)
    world.image.offset += 1
    world.duties.image_changed(0.3)
    assert not world.beat(1, STOPPING, 0.3)
    world.beat(2, READY, 0.4)
    assert not world.beat(1, STOPPING, 0.4)
    world.beat(3, READY, 0.5)
    assert world.beat(1, STOPPING, 0.5)
    assert len(world.proposed) == 1


def test_a_broker_that_is_fenced_may_stop_at_once() -> None:
    world = World()
    world.duties.lead(0.0)
    world.broker(1, fenced=True)
    world.duties.image_changed(0.0)
    assert world.beat(1, STOPPING, 0.1)


def test_preferred_leaders_are_restored_at_intervals_where_they_can_lead() -> None:
    world = World(
        p0=PartitionState((1, 2), (1, 2), leader=2),
        p1=PartitionState((1, 2), (2,), leader=2),
        p2=PartitionState((2, 1), (1, 2), leader=2),
        p3=PartitionState((3, 2), (3, 2), leader=2),
    )
    world.broker(3, fenced=True)
    world.duties.lead(0.0)
    for now in (299.0, 300.0, 301.0):
        world.beat(1, READY, now)
        world.beat(2, READY, now)
        world.beat(3, WAITING, now)
        world.duties.tick(now)
    (command,) = [command for command in world.proposed if isinstance(command, ElectLeaders)]
    assert command.partitions is not None
    assert [entry.partition for entry in command.partitions] == [0]


def test_what_is_known_of_deleted_topics_is_forgotten() -> None:
    world = World(p0=PartitionState((1, 2), (1, 2), leader=1))
    world.duties.lead(0.0)
    for number in range(5):
        world.duties.progress.note(ReplicaProgress(bytes([number]) * 16, 0, 2, 1, 100))
    world.duties.progress.note(ReplicaProgress(TOPIC, 0, 2, 1, 100))
    world.duties.image_changed(0.0)
    assert world.duties.progress.topics == {TOPIC}
    assert len(world.duties.progress.of([(TOPIC, 0), (bytes(16), 0)])) == 1


def waiting_world() -> World:
    """Return a world in which brokers 1 and 2 have left a partition uncleanly, as the duties have noticed."""
    world = World(p0=PartitionState((1, 2, 3), (), last_known_elr=(1, 2), partition_epoch=4))
    world.duties.lead(0.0)
    world.duties.tick(0.05)
    return world


def tell(world: World, broker_id: int, end: int, *, offset: int | None = None, epoch: int = 0) -> None:
    """Send a heartbeat with progress."""
    epoch = epoch or broker_id
    world.duties.progress.note(ReplicaProgress(TOPIC, 0, broker_id, 3, end, epoch))
    world.duties.progress.reported(broker_id, epoch, world.image.offset if offset is None else offset)


def elected(world: World) -> list[ElectLastKnown]:
    """Return the proposals since the last call."""
    world.duties.tick(0.1)
    found = [command for command in world.proposed if isinstance(command, ElectLastKnown)]
    world.proposed.clear()
    for done in world.outcomes:
        done()
    world.outcomes.clear()
    return found


def test_last_known_members_are_compared_when_all_have_told_where_their_logs_end() -> None:
    world = waiting_world()
    assert elected(world) == []
    tell(world, 1, 60)
    tell(world, 3, 90)
    assert elected(world) == []
    tell(world, 2, 80)
    (command,) = elected(world)
    ends = {
        (end.broker_id, end.broker_epoch, end.leader_epoch, end.log_end_offset) for end in command.progress
    }
    assert ends >= {(1, 1, 3, 60), (2, 2, 3, 80)}
    assert len(elected(world)) == 1, "it was refused: again"
    world.becomes(0, PartitionState((1, 2, 3), (2,), leader=2, partition_epoch=5))
    assert elected(world) == []


def test_a_partition_that_loses_its_last_members_later_is_watched_from_then_on() -> None:
    world = World(p0=PartitionState((1, 2, 3), (1,), leader=1, partition_epoch=3))
    world.duties.lead(0.0)
    tell(world, 1, 60)
    tell(world, 2, 80)
    world.becomes(0, PartitionState((1, 2, 3), (), last_known_elr=(1, 2), partition_epoch=4))
    assert elected(world) == [], "both reported while there was a leader"
    tell(world, 1, 60)
    tell(world, 2, 80)
    assert len(elected(world)) == 1


def test_nobody_is_elected_in_a_topic_that_was_deleted() -> None:
    world = waiting_world()
    tell(world, 1, 60)
    tell(world, 2, 80)
    removal = TopicRemovedRecord(topic_id=TOPIC)
    world.image.apply(removal)
    world.duties.noted([removal], 0.1)
    assert elected(world) == []


def test_last_known_members_that_are_fenced_or_whose_folder_failed_are_waited_for() -> None:
    world = waiting_world()
    tell(world, 1, 60)
    tell(world, 2, 80)
    world.broker(2, fenced=True)
    assert elected(world) == []
    world.broker(2, fenced=False)
    assert len(elected(world)) == 1
    offline = PartitionState((1, 2, 3), (), last_known_elr=(1, 2), partition_epoch=5, offline_replicas=(2,))
    world.becomes(0, offline)
    tell(world, 1, 60)
    tell(world, 2, 80)
    assert elected(world) == []


def test_what_was_told_before_the_last_registration_or_while_somebody_led_is_not_compared() -> None:
    """A log may be shorter after a crash of its machine, and longer than reported if it still grew."""
    world = waiting_world()
    tell(world, 1, 60)
    tell(world, 2, 80, epoch=1)
    assert elected(world) == []
    tell(world, 2, 80, offset=world.image.offset - 1)
    assert elected(world) == []
    tell(world, 2, 80)
    assert len(elected(world)) == 1
    world.image.offset += 5
    assert len(elected(world)) == 1, "other partitions have changed, this one has not"


def test_a_new_leader_of_the_quorum_asks_anew() -> None:
    world = waiting_world()
    tell(world, 1, 60)
    tell(world, 2, 80)
    world.duties.follow()
    assert elected(world) == []
    world.duties.lead(0.1)
    assert elected(world) == []
    tell(world, 2, 80)
    tell(world, 1, 60)
    assert len(elected(world)) == 1


def test_delegation_tokens_that_have_ended_are_forgotten_once() -> None:
    world = World()
    for token_id, expires_at_ms in (("old", 1_000), ("new", 9_000)):
        world.image.delegation_tokens[token_id] = TokenState(
            token_id, "User:a", "User:a", (), 0, expires_at_ms, 10_000, b"k"
        )
    world.wall_ms = 5_000
    world.duties.tick(0.0)
    assert world.proposed == [], "only the leader does"
    world.duties.lead(0.0)
    for now in (0.5, 1.0, 3601.0):
        world.duties.tick(now)
    command = RemoveExpiredTokens(token_ids=["old"], now_ms=5_000)
    assert world.proposed == [command], "the first is without an outcome yet"
    world.outcomes[0]()
    world.duties.tick(3602.0)
    assert world.proposed == [command, command]
