"""Short scenes on single parts, in which a planted mutant breaks a promise that the original code keeps."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ottla.dataplane.coordinated_log.replicated_log import ReplicatedLog
from ottla.dataplane.fetching.reading import FetchReader, Round
from ottla.dataplane.groups.coordinator import GroupCoordinator
from ottla.dataplane.log import LogConfig
from ottla.dataplane.security.authorization.access import EVERYTHING
from ottla.dataplane.storage.directory import LogDirectory
from ottla.metadata_quorum.raft import snapshots
from ottla.metadata_quorum.raft.disk import CorruptFile, Directory
from ottla.metadata_quorum.raft.formation import prepare
from ottla.metadata_quorum.raft.settings import Settings
from ottla.metadata_quorum.raft.startup import open_parts
from ottla.protocol.cluster.cluster_image import PartitionState
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.fetch import FetchPartition
from ottla.protocol.messages.partition_commands import (
    AlterPartition,
    AlterPartitionChange,
    AlterPartitionResult,
    IsrMember,
)
from ottla.protocol.messages.topic_commands import NewTopicConfig
from tests.dataplane.groups.test_shard import LIMITS, Clock, MemoryLog, commit, join, new_shard
from tests.dataplane.replication.harness import LAG_MS, ReplicasByHand, batch
from tests.metadata_quorum.state.harness import ControllerWithBrokers as Quorum
from tests.metadata_quorum.state.harness import assigned
from tests.metadata_quorum.test_liveness_answers import TIMEOUT_S, Exchange

Scene = Callable[[Path], bool]
"""A function that plays in an empty folder and returns True if the promise was broken."""

_scenes: defaultdict[str, list[Scene]] = defaultdict(list)
SCENES: Mapping[str, list[Scene]] = _scenes
"""Scenes by the mutant's name."""

IDEMPOTENT = (7, 0)


def shows(mutant: str) -> Callable[[Scene], Scene]:
    """Register a scene that reveals this mutant."""

    def note(scene: Scene) -> Scene:
        _scenes[mutant].append(scene)
        return scene

    return note


def formed(folder: Path, **settings: Any) -> ReplicasByHand:
    """Return brokers 1, 2 and 3 in the ISR, led by the first."""
    cluster = ReplicasByHand(folder, **settings)
    cluster.elect(1)
    cluster.sync(1, 2, 3)
    return cluster


# Followers


@shows("truncate-to-high-watermark")
def an_acknowledged_record_is_cut(folder: Path) -> bool:
    cluster = formed(folder)
    sent = cluster[1].produce(b"m")
    for follower in (2, 3):
        cluster.fetch(follower, 1)
        cluster[1].serve(cluster[follower].ask())  # Acknowledges; the answer is lost.
    assert sent.outcome is ErrorCode.NONE
    cluster.elect(2, isr=(2, 3))
    cluster.elect(3, isr=(3,))
    return cluster[3].values() != [b"m"]


@shows("truncate-to-high-watermark")
def a_fetch_does_not_name_its_epoch(folder: Path) -> bool:
    cluster = formed(folder)
    cluster[1].produce(b"m")
    cluster.sync(1, 2, 3)
    cluster.elect(1)
    return cluster[2].ask().positions[0].last_fetched_epoch != 1


@shows("fast-double-failover")
def records_of_an_unknown_epoch_stay(folder: Path) -> bool:
    cluster = formed(folder)
    cluster[1].produce(b"common")
    cluster.sync(1, 2, 3)
    cluster.elect(2, tell=(1, 2))
    for value in (b"b1", b"b2", b"b3"):
        cluster[2].produce(value)
    cluster.sync(2, 1)
    cluster.elect(3, isr=(1, 3), tell=(3,))
    for value in (b"c1", b"c2"):
        cluster[3].produce(value)
    cluster.elect(1, isr=(1,), tell=(1, 3))
    cluster[1].produce(b"a1")
    cluster.sync(1, 3)
    return cluster[3].values() != [b"common", b"b1", b"b2", b"b3", b"a1"]


@shows("late-answer-taken")
def an_answer_from_an_older_epoch_is_appended(folder: Path) -> bool:
    cluster = formed(folder)
    cluster[1].produce(b"zombie", acks=1)
    session = cluster[2].following
    assert session is not None
    late = cluster[1].serve(cluster[2].ask())
    cluster.elect(1, tell=(2,))
    session.follow(cluster[2].partition)
    session.answered(late[0])
    return cluster[2].values() != []


@shows("stale-leader-epoch-served")
def a_fetch_of_an_older_epoch_acknowledges(folder: Path) -> bool:
    cluster = formed(folder)
    ask = cluster[2].ask()
    again = cluster[2].following
    assert again is not None
    cluster.elect(1, tell=(1,))
    again.disconnected()
    cluster[1].serve(cluster[2].ask())
    assert not ask.positions
    leader = cluster[1].partition.leader
    assert leader is not None
    return leader.followers[2].log_end_offset != -1


@shows("new-leader-shows-log-end")
def a_record_that_one_member_lacks_is_shown(folder: Path) -> bool:
    cluster = formed(folder)
    cluster[1].produce(b"m")
    cluster.fetch(2, 1)
    cluster.elect(2, isr=(2, 3), tell=(2, 3))
    return cluster[2].partition.high_watermark > 0


# The ISR


@shows("joins-before-epoch-start")
def a_follower_joins_at_a_high_watermark_that_lags(folder: Path) -> bool:
    cluster = ReplicasByHand(folder, min_in_sync=2)
    cluster.elect(1, isr=(1, 2))
    cluster.sync(1, 2)
    for value in (b"a", b"b", b"c"):
        cluster[1].produce(value)
    cluster.fetch(2, 1)
    cluster[1].serve(cluster[2].ask())
    assert cluster[1].partition.high_watermark == 3
    cluster.elect(2, isr=(2,), tell=(2, 3))
    watermark = cluster[2].partition.high_watermark
    assert watermark < 3
    cluster[2].partition.fetched_by(3, cluster.brokers[3].broker_epoch, watermark)
    leader = cluster[2].partition.leader
    assert leader is not None
    return leader.propose_expand(3) is not None


@shows("pending-member-not-waited-for")
def a_record_is_acknowledged_without_the_member_proposed(folder: Path) -> bool:
    cluster = ReplicasByHand(folder)
    cluster.elect(1, isr=(1,))
    cluster.sync(1, 2)
    (proposal,) = cluster[1].proposals
    cluster.alter_partition(1, proposal)
    return cluster[1].produce(b"m").outcome is ErrorCode.NONE


@shows("leaving-member-not-waited-for")
def a_record_is_acknowledged_without_the_member_that_may_leave(folder: Path) -> bool:
    cluster = formed(folder)
    sent = cluster[1].produce(b"m")
    cluster.now_ms += LAG_MS + 1
    partition = cluster[1].partition
    assert partition.leader is not None
    assert partition.leader.propose_shrink(cluster.now_ms) is not None
    partition.advance()
    return sent.outcome is ErrorCode.NONE


@shows("stale-broker-epoch-joins")
def the_quorum_takes_a_member_of_a_former_life(_folder: Path) -> bool:
    quorum = Quorum()
    quorum.create(assigned("t", [1, 2, 3]))
    quorum.fence(2)
    quorum.unfence(2)
    former = quorum.epoch(2)
    state = partition_of(quorum)
    members = [IsrMember(broker_id=broker, broker_epoch=quorum.epoch(broker)) for broker in (1, 3)]
    change = AlterPartitionChange(
        topic_id=quorum.topic_id("t"),
        partition=0,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        new_isr=[*members, IsrMember(broker_id=2, broker_epoch=former)],
    )
    quorum.start(2)
    quorum.unfence(2)
    quorum.do(
        AlterPartition(broker_id=1, broker_epoch=quorum.epoch(1), partitions=[change]), AlterPartitionResult
    )
    return 2 in partition_of(quorum).isr


@shows("stale-broker-epoch-joins")
def the_leader_proposes_a_member_of_a_former_life(folder: Path) -> bool:
    cluster = ReplicasByHand(folder, isr=(1,))
    cluster.elect(1, isr=(1,))
    ask = cluster[2].ask()
    cluster[2].crash()
    cluster[1].hear()
    cluster[1].serve(ask)  # Refused by its session; what the leader knew from before counts here.
    cluster[1].partition.fetched_by(2, 102, 0)
    leader = cluster[1].partition.leader
    assert leader is not None
    return leader.propose_expand(2) is not None


@shows("commits-below-min-isr")
def the_last_replica_commits_alone(folder: Path) -> bool:
    cluster = formed(folder, min_in_sync=2)
    sent = cluster[1].produce(b"m")
    cluster.now_ms += LAG_MS + 1
    epoch = cluster.state.partition_epoch + 1
    cluster[1].partition.isr_committed(cluster.state.leader_epoch, epoch, (1,))
    return sent.outcome is ErrorCode.NONE


def partition_of(quorum: Quorum) -> PartitionState:
    """Return the state of topic t's only partition."""
    return quorum.machine.image.topics["t"].partitions[0]


@shows("unclean-stop-passes-for-clean")
def the_sole_member_stays_after_a_crash(_folder: Path) -> bool:
    quorum = Quorum()
    topic = assigned("t", [1, 2])
    topic.configs = [NewTopicConfig(name="min.insync.replicas", value="2")]
    quorum.create(topic)
    quorum.fence(2)
    assert (partition_of(quorum).isr, partition_of(quorum).elr) == ((1,), (2,))
    quorum.start(1)
    return 1 in partition_of(quorum).isr


@shows("unclean-election")
def a_replica_out_of_sync_is_elected(_folder: Path) -> bool:
    quorum = Quorum()
    quorum.create(assigned("t", [1, 2]))
    quorum.fence(2)
    quorum.unfence(2)
    quorum.fence(1)
    return partition_of(quorum).leader == 2


@shows("acknowledged-before-flushed")
def nobody_has_flushed_and_it_is_acknowledged(folder: Path) -> bool:
    cluster = ReplicasByHand(folder, brokers=(1, 2), durable=True)
    cluster.elect(1)
    cluster.sync(1, 2)
    sent = cluster[1].produce(b"m")
    cluster.sync(1, 2)
    return sent.outcome is ErrorCode.NONE


# A broker's state besides the records


@shows("followers-forget-producers")
def a_retry_is_appended_again_by_the_next_leader(folder: Path) -> bool:
    cluster = formed(folder)
    cluster[1].produce(b"m", producer=(*IDEMPOTENT, 0))
    cluster.sync(1, 2, 3)
    cluster.elect(2, isr=(2, 3))
    return not cluster[2].produce(b"m", producer=(*IDEMPOTENT, 0)).duplicate


@shows("truncation-keeps-producers")
def a_record_that_was_cut_is_taken_for_a_duplicate(folder: Path) -> bool:
    cluster = formed(folder)
    cluster[1].produce(b"first", producer=(*IDEMPOTENT, 0))
    cluster.sync(1, 2, 3)
    cluster[1].produce(b"m", producer=(*IDEMPOTENT, 1))
    cluster.elect(2)
    cluster.sync(2, 1, 3)
    assert cluster[1].values() == [b"first"]
    cluster.elect(1)
    return cluster[1].produce(b"m", producer=(*IDEMPOTENT, 1)).duplicate


@shows("recovery-forgets-producers")
def a_retry_is_appended_again_after_a_restart(folder: Path) -> bool:
    cluster = formed(folder)
    cluster[1].produce(b"m", producer=(*IDEMPOTENT, 0))
    cluster[1].crash()
    cluster[1].hear()
    return not cluster[1].produce(b"m", producer=(*IDEMPOTENT, 0)).duplicate


@shows("crash-passes-for-clean-stop")
def a_crash_is_not_noticed(folder: Path) -> bool:
    def opened() -> LogDirectory:
        directory = LogDirectory.open(folder, "cluster", 1, new_directory_id=b"d" * 16)
        directory.load({}, LogConfig(), now_ms=0)
        return directory

    opened().close(clean=True, broker_epoch=5)
    directory = opened()
    assert directory.last_clean_broker_epoch is not None
    directory.close(clean=False)
    directory = opened()
    noticed = directory.last_clean_broker_epoch is None
    directory.close(clean=False)
    return not noticed


@shows("uncommitted-records-shown")
def a_consumer_reads_beyond_the_high_watermark(folder: Path) -> bool:
    cluster = formed(folder)
    partition = cluster[1].partition
    cluster[1].produce(b"m")
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    fetch: Any = SimpleNamespace(
        request=SimpleNamespace(access=EVERYTHING, api_version=12), message=SimpleNamespace(isolation_level=0)
    )
    wanted: Any = SimpleNamespace(part=part)
    found = Round(1 << 20)
    reader = FetchReader(None, None, 1 << 20)  # type: ignore[arg-type]
    found.outcomes.append(reader._read_from(fetch, wanted, partition, found))
    found.release()
    assert found.outcomes[0].replica is partition
    return found.size > 0


@shows("zombie-coordinator")
def a_group_is_still_found_where_it_was(_folder: Path) -> bool:
    async def play() -> bool:
        coordinator = GroupCoordinator(LIMITS, Clock(), lambda: 1, lambda: ())
        coordinator.elected(0, MemoryLog())
        while coordinator.loading:
            await asyncio.sleep(0)
        coordinator.shard_for("g")
        coordinator.resigned(0)
        try:
            coordinator.shard_for("g")
        except KafkaError:
            return False
        return True

    return asyncio.run(play())


@shows("commits-of-anybody")
def an_older_generation_commits(_folder: Path) -> bool:
    async def play() -> bool:
        shard, _ = await new_shard()
        member = join(shard)
        who: dict[str, Any] = {"member_id": member.member_id, "generation": member.generation + 1}
        return commit(shard, 5, **who) == [ErrorCode.NONE]

    return asyncio.run(play())


@shows("commits-before-replicated")
def a_commit_is_answered_before_followers_have_it(folder: Path) -> bool:
    cluster = formed(folder)
    outcomes: list[ErrorCode] = []
    ReplicatedLog(cluster[1].partition).append(batch(b"commit"), outcomes.append)
    return outcomes == [ErrorCode.NONE]


@shows("retention-above-high-watermark")
def a_segment_goes_before_it_is_committed(folder: Path) -> bool:
    cluster = formed(folder)
    cluster[1].produce(b"m")
    partition = cluster[1].partition
    partition.log.config = replace(partition.log.config, retention_ms=1)
    partition.log.old_segments.retain(partition.high_watermark, 1 << 50)
    return partition.log.log_start_offset > partition.high_watermark


# The quorum


@shows("deaf-broker-stays")
def a_broker_that_hears_no_answer_is_alive(_folder: Path) -> bool:
    exchange = Exchange()
    exchange.beats_for(10)
    exchange.beats_for(3 * TIMEOUT_S, heard=False)
    return not exchange.expired


@shows("snapshot-hides-torn-journal")
def damage_behind_a_snapshot_is_passed_over(folder: Path) -> bool:
    disk = Directory(folder)
    formation = prepare(disk, "cluster", 1, b"d" * 16)
    parts = open_parts(disk, formation, Settings(), replace_empty=False)
    for index in range(2, 12):
        parts.journal.append(b"command", index, 1)
    parts.journal.close()
    snapshots.write(disk, snapshots.FOLDED_NAME, 5, 1, [b"state"])
    parts.store.publish(snapshots.FOLDED_NAME)
    (path,) = folder.glob("journal-*")
    content = bytearray(path.read_bytes())
    content[content.rindex(b"command")] ^= 1
    path.write_bytes(content)
    try:
        parts = open_parts(disk, formation, Settings(), replace_empty=False)
    except CorruptFile:
        return False
    parts.journal.close()
    return parts.journal.last_index < 11
