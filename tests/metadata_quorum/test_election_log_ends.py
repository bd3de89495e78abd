"""The log ends in a command are few, and give the same decision as all known log ends."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.metadata_quorum.election_log_ends import election_log_ends
from ottla.metadata_quorum.liveness import ProgressTable, ReplicaProgress
from ottla.metadata_quorum.state.election import Electorate, without
from ottla.metadata_quorum.state.workspace import Workspace
from ottla.protocol.cluster.cluster_image import BrokerState, ClusterImage, PartitionState, TopicState
from ottla.protocol.messages.partition_commands import ReplicaLogEnd

TOPIC = b"t" * 16
LEAVING, BROKERS = 1, (1, 2, 3, 4)
EPOCHS = {broker_id: 10 + broker_id for broker_id in BROKERS}


def cluster(states: list[PartitionState], fenced: frozenset[int] = frozenset()) -> ClusterImage:
    image = ClusterImage()
    topic = TopicState(TOPIC, "t", dict(enumerate(states)))
    image.topics["t"] = image.topics_by_id[TOPIC] = topic
    for broker_id in BROKERS:
        image.brokers[broker_id] = BrokerState(
            broker_id, EPOCHS[broker_id], bytes(16), fenced=broker_id in fenced
        )
    return image


def told(*entries: ReplicaProgress) -> ProgressTable:
    table = ProgressTable()
    for entry in entries:
        table.note(entry)
    return table


def end(broker_id: int, offset: int, *, leader_epoch: int = 3, partition: int = 0) -> ReplicaProgress:
    return ReplicaProgress(TOPIC, partition, broker_id, leader_epoch, offset, EPOCHS[broker_id])


@st.composite
def led_partitions(draw: st.DrawFn) -> PartitionState:
    """Draw a partition that the leaving broker leads or once led."""
    replicas = draw(st.permutations(BROKERS).map(lambda order: tuple(order[: draw(st.integers(1, 4))])))
    roles = {broker_id: draw(st.sampled_from(["isr", "elr", "last known", "none"])) for broker_id in replicas}
    isr, elr, last_known = (
        tuple(broker_id for broker_id in replicas if roles[broker_id] == role)
        for role in ("isr", "elr", "last known")
    )
    offline = tuple(
        broker_id for broker_id in replicas if broker_id != LEAVING and draw(st.integers(0, 9)) == 0
    )
    leader = LEAVING if LEAVING in isr else -1
    return PartitionState(replicas, isr, elr, last_known, leader, 5, 9, offline_replicas=offline)


@st.composite
def entries(draw: st.DrawFn) -> ReplicaProgress:
    broker_id = draw(st.sampled_from(BROKERS))
    epoch = draw(st.sampled_from([EPOCHS[broker_id], EPOCHS[broker_id], -1, 1]))
    return ReplicaProgress(
        TOPIC, 0, broker_id, draw(st.integers(2, 3)), draw(st.sampled_from([7, 7, 8])), epoch
    )


@given(
    led_partitions(),
    st.lists(entries(), max_size=6),
    st.frozensets(st.sampled_from(BROKERS[1:]), max_size=2),
    st.integers(1, 3),
    st.booleans(),
)
def test_the_same_replica_is_elected_as_by_all_that_is_known(
    state: PartitionState,
    known: list[ReplicaProgress],
    fenced: frozenset[int],
    min_isr: int,
    unclean_allowed: bool,
) -> None:
    image, table = cluster([state], fenced), told(*known)
    electorate = Electorate(frozenset(BROKERS) - fenced - {LEAVING}, min_isr, unclean_allowed=unclean_allowed)

    def after(told_ends: list[ReplicaProgress]) -> PartitionState:
        work = Workspace(image, lambda *_: None)
        progress = work.by_partition(
            ReplicaLogEnd(
                topic_id=end.topic_id,
                partition=end.partition,
                broker_id=end.broker_id,
                leader_epoch=end.leader_epoch,
                log_end_offset=end.log_end_offset,
                broker_epoch=end.broker_epoch,
            )
            for end in told_ends
        )
        return without(state, LEAVING, electorate, progress.get((TOPIC, 0), {}))

    few = list(election_log_ends(image, table, LEAVING))
    if state.leader == LEAVING:
        assert after(few) == after(table.of([(TOPIC, 0)]))
    else:
        assert not few


def test_nothing_is_told_of_replicas_that_are_equally_far() -> None:
    led = PartitionState((1, 2, 3), (1, 2, 3), leader=1)
    table = told(end(1, 9), end(2, 7), end(3, 7))
    assert list(election_log_ends(cluster([led]), table, LEAVING)) == []


def test_nothing_is_told_where_only_one_can_follow() -> None:
    led = PartitionState((1, 2, 3), (1, 2, 3), leader=1)
    table = told(end(2, 7), end(3, 8))
    assert list(election_log_ends(cluster([led], frozenset({3})), table, LEAVING)) == []


def test_all_that_is_known_is_told_where_one_is_further() -> None:
    led = PartitionState((1, 2, 3), (1, 2, 3), leader=1)
    ends = [end(1, 9), end(2, 7), end(3, 8)]
    assert list(election_log_ends(cluster([led, led]), told(*ends), LEAVING)) == ends


def test_what_a_process_told_that_was_replaced_is_not_known() -> None:
    led = PartitionState((1, 2, 3), (1, 2, 3), leader=1)
    old = ReplicaProgress(TOPIC, 0, 3, 3, 7, EPOCHS[3] - 1)
    assert list(election_log_ends(cluster([led]), told(end(2, 7), old), LEAVING)) == [end(2, 7), old]
