"""Partitions that return to their preferred leader, and settings of a quorum node's file that become the cluster's."""

from __future__ import annotations

import pytest

from ottla.metadata_quorum.config import DutySettings
from ottla.metadata_quorum.leader_duties import LeaderCommand, LeaderDuties
from ottla.metadata_quorum.liveness import ReplicaProgress, SessionTracker
from ottla.metadata_quorum.state.controller import Controller
from ottla.protocol.cluster.cluster_image import BrokerState, ClusterImage, PartitionState, TopicState
from ottla.protocol.messages import quorum_commands as q
from ottla.protocol.messages.partition_commands import ElectionPartition, ElectLeaders

TOPIC = b"t" * 16


def image_with(*leaders: int) -> ClusterImage:
    """Return an image with one partition per leader; every partition prefers broker 1."""
    image = ClusterImage()
    image.cluster_id = "c"
    for broker_id in (1, 2):
        image.brokers[broker_id] = BrokerState(broker_id, broker_id, bytes(16), fenced=False)
    states = [PartitionState((1, 2), (1, 2), leader=leader) for leader in leaders]
    image.topics["t"] = image.topics_by_id[TOPIC] = TopicState(TOPIC, "t", dict(enumerate(states)))
    return image


def proposals(
    image: ClusterImage, percentage: int = 10, defaults: dict[str, str] | None = None
) -> list[LeaderCommand]:
    """Return the proposals of a new leader until its first balance check."""
    proposed: list[LeaderCommand] = []
    duties = LeaderDuties(
        lambda: image,
        SessionTracker(timeout_s=1e9),
        lambda command, done: proposed.append(command),
        cluster_id="c",
        imbalance_check_interval_s=10,
        settings=DutySettings(imbalance_percentage=percentage),
        defaults=defaults,
    )
    duties.lead(0.0)
    duties.tick(11.0)
    return proposed


@pytest.mark.parametrize(("leaders", "percentage", "moved"), [
    ((1,) * 9 + (2,), 10, []),
    ((1,) * 9 + (2,), 9, [9]),
    ((1,) * 8 + (2, 2), 10, [8, 9]),
    ((2,), 100, []),
    ((1, 2), 0, [1]),
    ((1, 1), 0, []),
])  # fmt: skip
def test_partitions_go_back_where_too_many_are_led_by_others(
    leaders: tuple[int, ...], percentage: int, moved: list[int]
) -> None:
    commands = proposals(image_with(*leaders), percentage)
    if not moved:
        assert commands == []
        return
    (command,) = commands
    assert isinstance(command, ElectLeaders)
    assert [entry.partition for entry in command.partitions or []] == moved


def test_what_is_known_of_the_replicas_that_nobody_leads() -> None:
    """An unclean election on request depends on it."""
    duties = LeaderDuties(
        lambda: image_with(1, -1, 2, -1),
        SessionTracker(timeout_s=1e9),
        lambda command, done: None,
        cluster_id="c",
        imbalance_check_interval_s=10,
    )
    for partition in range(4):
        for broker_id in (1, 2):
            duties.progress.note(ReplicaProgress(TOPIC, partition, broker_id, 3, 10 * broker_id + partition))
    progress = duties.leaderless_progress(None)
    assert {(end.partition, end.broker_id, end.log_end_offset) for end in progress} == {
        (1, 1, 11), (1, 2, 21), (3, 1, 13), (3, 2, 23),
    }  # fmt: skip
    named = [ElectionPartition(topic_id=TOPIC, partition=partition) for partition in (0, 1)]
    progress = duties.leaderless_progress(named)
    assert {(end.partition, end.broker_id) for end in progress} == {(1, 1), (1, 2)}, "of what was asked for"


def test_what_the_file_says_holds_for_all_brokers_unless_it_is_set() -> None:
    defaults = {"min.insync.replicas": "2", "unclean.leader.election.enable": "true"}
    machine = Controller()
    for command in proposals(machine.image, defaults=defaults):
        machine.apply(1, 1, q.encode_command(None, command))
    assert machine.image.cluster_id == "c"
    assert machine.image.configs == {(4, ""): defaults}
    assert proposals(machine.image, defaults=defaults) == []
    assert proposals(machine.image, defaults={"min.insync.replicas": "3"}) == []
