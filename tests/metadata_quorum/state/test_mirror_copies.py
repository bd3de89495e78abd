"""Copies in the controller: topics that follow their source, faults that stop them, and accepted losses."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.metadata_quorum.state import topics as topics_module
from ottla.protocol.cluster.mirror_table import NO_EPOCH, FaultKind, MirrorPhase, Resumption
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.command import PlainResult
from ottla.protocol.messages.config_commands import ResourceType
from ottla.protocol.messages.topic_commands import DeleteTopics, DeleteTopicsResult
from ottla.protocol.wire.schema import ZERO_UUID

from .harness import topic
from .mirrored import Mirrors, at_source, epochs

ACTIVE, PAUSED, PROMOTED = MirrorPhase.ACTIVE, MirrorPhase.PAUSED, MirrorPhase.PROMOTED
GAP, DIVERGED, MADE_ANEW = FaultKind.GAP, FaultKind.DIVERGED, FaultKind.MADE_ANEW


@pytest.fixture
def cluster() -> Mirrors:
    """Return a cluster with mirror "m"."""
    cluster = Mirrors()
    assert not cluster.create_mirror().error_code
    return cluster


def refused(result: PlainResult, code: int, said: str) -> None:
    assert result.error_code == code, result
    assert said in result.error_message


# Topics that follow


def settings_of(cluster: Mirrors, name: str = "t") -> dict[str, str]:
    return cluster.machine.image.configs.get((ResourceType.TOPIC, name), {})


def test_a_copy_has_the_id_the_partitions_and_the_settings_of_its_source(cluster: Mirrors) -> None:
    (made,) = cluster.follow(at_source(partitions=3, factor=2, retention_ms="5000"))
    assert not made.error_code
    copy = cluster.machine.image.topics["t"]
    assert copy.id == b"s" * 16
    assert sorted(copy.partitions) == [0, 1, 2]
    assert {len(state.replicas) for state in copy.partitions.values()} == {2}
    assert settings_of(cluster) == {"retention.ms": "5000"}
    assert cluster.is_copy()


def test_a_copy_has_as_many_replicas_as_there_are_brokers(cluster: Mirrors) -> None:
    cluster.follow(at_source(factor=5))
    assert len(cluster.partition().replicas) == 3


@pytest.mark.parametrize("source_id", [ZERO_UUID, b"taken" + bytes(11)], ids=["untold", "taken"])
def test_a_copy_has_an_id_of_its_own_where_it_must(cluster: Mirrors, source_id: bytes) -> None:
    cluster.follow(at_source("taken", source_id=b"taken" + bytes(11)))
    cluster.follow(at_source(source_id=source_id))
    assert cluster.topic_id("t") not in (ZERO_UUID, source_id)
    assert cluster.machine.image.mirrors.topics[cluster.topic_id("t")].source_topic_id == source_id


def test_the_id_of_a_copy_that_is_deleted_is_not_given_again(cluster: Mirrors) -> None:
    """A broker that was away all the time would come back with a log of that id, and other records."""
    cluster.follow(at_source())
    first = cluster.topic_id("t")
    cluster.promote()
    assert not cluster.do(DeleteTopics(names=["t"]), DeleteTopicsResult).topics[0].error_code
    cluster.delete_mirror()
    cluster.machine = cluster.restored()
    cluster.create_mirror()
    (made,) = cluster.follow(at_source())
    assert not made.error_code
    assert cluster.topic_id("t") != first
    assert cluster.machine.image.mirrors.topics[cluster.topic_id("t")].source_topic_id == first


def test_one_that_cannot_be_copied_does_not_hinder_the_others(cluster: Mirrors) -> None:
    cluster.create(topic("ours"))
    cluster.create_mirror("other")
    cluster.follow(at_source("theirs", source_id=b"x" * 16), mirror="other")
    results = cluster.follow(
        at_source("ours"), at_source("theirs"), at_source("__consumer_offsets"), at_source("a b"), at_source()
    )
    exists = ErrorCode.TOPIC_ALREADY_EXISTS
    codes = [result.error_code for result in results]
    assert codes == [exists, exists, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_TOPIC_EXCEPTION, 0]
    assert "'ours' here, which is of no mirror" in results[0].error_message
    assert "which is of mirror 'other'" in results[1].error_message
    assert "belongs to the brokers" in results[2].error_message
    assert not cluster.is_copy("ours")


def test_a_copy_grows_and_does_not_shrink(cluster: Mirrors) -> None:
    for partitions, expected in ((2, 2), (5, 5), (1, 5)):
        assert not cluster.follow(at_source(partitions=partitions))[0].error_code
        assert len(cluster.machine.image.topics["t"].partitions) == expected


def test_a_command_makes_so_many_partitions_at_most(
    cluster: Mirrors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics_module, "PARTITIONS_PER_COMMAND_MAX", 4)
    results = cluster.follow(
        at_source("a", 3), at_source("b", 3, source_id=b"b" * 16), at_source("c", 1, source_id=b"c" * 16)
    )
    assert [bool(result.error_code) for result in results] == [False, True, False]
    assert cluster.follow(at_source("a", 8))[0].error_code
    assert not cluster.follow(at_source("b", 3, source_id=b"b" * 16))[0].error_code


def test_settings_follow_as_far_as_they_are_the_source_s_affair(cluster: Mirrors) -> None:
    cluster.follow(at_source(retention_ms="5000", cleanup_policy="compact"))
    cluster.follow(at_source(retention_ms="6000", min_insync_replicas="2", segment_bytes="no number"))
    assert settings_of(cluster) == {"retention.ms": "6000"}
    offset = cluster.machine.image.offset
    cluster.follow(at_source(retention_ms="6000"))
    assert cluster.machine.image.offset == offset, "nothing is new"


@pytest.mark.parametrize("phase", [PAUSED, PROMOTED])
def test_nothing_follows_a_mirror_that_is_not_active(cluster: Mirrors, phase: MirrorPhase) -> None:
    cluster.alter(phase)
    result = cluster.follow_all([at_source()])
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert f"is {phase.name.lower()}" in result.error_message
    assert not cluster.machine.image.topics


def test_an_id_that_was_not_told_is_taken_over(cluster: Mirrors) -> None:
    cluster.follow(at_source(source_id=ZERO_UUID))
    cluster.follow(at_source(source_id=b"s" * 16))
    assert cluster.machine.image.mirrors.topics[cluster.topic_id("t")].source_topic_id == b"s" * 16
    assert cluster.copy().fault is None


def test_an_id_that_is_not_told_any_more_is_remembered(cluster: Mirrors) -> None:
    cluster.follow(at_source())
    cluster.follow(at_source(source_id=ZERO_UUID))
    assert cluster.copy().fault is None
    cluster.follow(at_source(source_id=b"n" * 16))
    fault = cluster.copy().fault
    assert fault is not None
    assert fault.kind is MADE_ANEW


def test_a_topic_that_was_made_anew_stops_all_its_partitions(cluster: Mirrors) -> None:
    cluster.follow(at_source(partitions=2, retention_ms="5000"))
    assert not cluster.follow(at_source(partitions=3, source_id=b"n" * 16, retention_ms="1"))[0].error_code
    assert len(cluster.machine.image.topics["t"].partitions) == 2
    assert settings_of(cluster) == {"retention.ms": "5000"}
    for index in (0, 1):
        fault = cluster.copy(index=index).fault
        assert fault is not None
        assert (fault.kind, fault.first, fault.end) == (MADE_ANEW, 0, -1)
        assert "'t' was deleted, and made anew" in fault.reason


# Reports of leaders


def test_the_lineage_of_a_copy_only_rises(cluster: Mirrors) -> None:
    cluster.follow(at_source())
    for reported, expected in (
        (((3, 0),), ((3, 0),)),
        (((3, 0), (5, 40)), ((3, 0), (5, 40))),
        (((4, 50),), ((3, 0), (5, 40))),
        (((6, 39),), ((3, 0), (5, 40))),
        (((6, 40), (7, 40), (7, 90)), ((3, 0), (5, 40), (6, 40), (7, 40))),
    ):
        cluster.report(epochs=epochs(*reported))
        assert cluster.copy().lineage == expected
    copy = cluster.copy()
    assert [copy.source_epoch_below(offset) for offset in (0, 1, 40, 41, 99)] == [NO_EPOCH, 3, 3, 7, 7]


def test_a_copy_begins_where_its_source_does_once(cluster: Mirrors) -> None:
    cluster.follow(at_source())
    epoch = cluster.partition().leader_epoch
    cluster.report(begins_at=1000)
    assert cluster.copy().resumption == Resumption(epoch + 1, 1000)
    assert cluster.partition().leader_epoch == epoch + 1
    cluster.report(leader_epoch=epoch, begins_at=2000)
    assert cluster.copy().resumption == Resumption(epoch + 1, 1000), "it was reported in a former epoch"
    cluster.report(epochs=epochs((3, 1000)))
    cluster.report(begins_at=3000)
    assert cluster.copy().resumption == Resumption(epoch + 1, 1000), "it is not empty any more"


def test_the_first_fault_stays(cluster: Mirrors) -> None:
    cluster.follow(at_source())
    cluster.report(fault=GAP, fault_first=10, fault_end=20, fault_reason="retention", epochs=epochs((9, 9)))
    cluster.report(fault=DIVERGED, fault_first=5, fault_end=10, fault_reason="later")
    fault = cluster.copy().fault
    assert fault is not None
    assert (fault.kind, fault.first, fault.end, fault.reason) == (GAP, 10, 20, "retention")
    assert cluster.copy().lineage == (), "records with a fault are not copied"


@pytest.mark.parametrize("fault_range", [(77, 1, 2), (-1, 1, 2), (GAP, -1, 2), (GAP, 3, 2), (GAP, -1, -1)])
def test_a_fault_behind_which_nobody_could_go_on_is_none(
    cluster: Mirrors, fault_range: tuple[int, int, int]
) -> None:
    cluster.follow(at_source())
    cluster.report(fault=fault_range[0], fault_first=fault_range[1], fault_end=fault_range[2])
    assert cluster.copy().fault is None


@pytest.mark.parametrize(
    "fields", [{"epochs": epochs((1, 0))}, {"begins_at": 5}, {"fault": 1, "fault_first": 1, "fault_end": 2}]
)
@pytest.mark.parametrize(
    "who", ["former epoch", "follower", "paused", "promoted", "no copy", "gone", "no partition"]
)
def test_reports_that_count_for_nothing(cluster: Mirrors, fields: dict[str, Any], who: str) -> None:
    cluster.follow(at_source(factor=3))
    cluster.create(topic("ours"))
    changes: dict[str, Any] = {}
    match who:
        case "former epoch":
            changes = {"leader_epoch": cluster.partition().leader_epoch - 1}
        case "follower":
            changes = {
                "broker": next(
                    broker_id for broker_id in (1, 2, 3) if broker_id != cluster.partition().leader
                )
            }
        case "paused":
            cluster.alter(PAUSED)
        case "promoted":
            cluster.promote()
        case "no copy":
            changes = {"name": "ours"}
        case "gone":
            changes = {"topic_id": b"?" * 16}
        case "no partition":
            changes = {"partition": 1}
    offset = cluster.machine.image.offset
    cluster.report(**fields, **changes)
    assert cluster.machine.image.offset == offset


# Accepted losses


def test_behind_a_gap_the_copy_goes_on_in_a_new_epoch(cluster: Mirrors) -> None:
    cluster.follow(at_source(partitions=2))
    cluster.report(epochs=epochs((1, 0)))
    cluster.report(fault=GAP, fault_first=10, fault_end=20)
    before = [cluster.partition(index=index) for index in (0, 1)]
    assert not cluster.accept().error_code
    assert cluster.copy().fault is None
    assert cluster.copy().resumption == Resumption(before[0].leader_epoch + 1, 20)
    assert cluster.copy().lineage == ((1, 0),)
    assert cluster.partition().leader_epoch == before[0].leader_epoch + 1
    assert cluster.partition(index=1) == before[1], "it had no fault"


def test_where_the_source_diverged_what_it_has_not_is_cut_off(cluster: Mirrors) -> None:
    cluster.follow(at_source())
    cluster.report(epochs=epochs((1, 0), (2, 15), (3, 30)))
    cluster.report(fault=DIVERGED, fault_first=15, fault_end=40)
    epoch = cluster.partition().leader_epoch
    cluster.accept("t")
    assert cluster.copy().resumption == Resumption(epoch + 1, 15)
    assert cluster.copy().lineage == ((1, 0),)


def test_a_topic_made_anew_is_copied_from_its_beginning(cluster: Mirrors) -> None:
    cluster.follow(at_source(partitions=2))
    cluster.report(epochs=epochs((4, 0)))
    anew = at_source(partitions=3, source_id=b"n" * 16)
    cluster.follow(anew)
    cluster.accept()
    assert [cluster.copy(index=index).lineage for index in (0, 1)] == [(), ()]
    assert [cluster.copy(index=index).resumption for index in (0, 1)] == [
        Resumption(cluster.partition(index=index).leader_epoch, 0) for index in (0, 1)
    ]
    cluster.follow(anew)
    assert [cluster.copy(index=index).fault for index in (0, 1, 2)] == [None] * 3
    assert cluster.machine.image.mirrors.topics[cluster.topic_id("t")].source_topic_id == b"n" * 16


def test_who_accepts_a_topic_made_anew_accepts_it_for_partitions_that_had_stopped_before(
    cluster: Mirrors,
) -> None:
    cluster.follow(at_source(partitions=2))
    cluster.report(epochs=epochs((4, 0)))
    cluster.report(fault=GAP, fault_first=10, fault_end=20)
    anew = at_source(partitions=2, source_id=b"n" * 16)
    cluster.follow(anew)
    cluster.accept()
    for index in (0, 1):
        assert cluster.copy(index=index).lineage == ()
        expected = Resumption(cluster.partition(index=index).leader_epoch, 0)
        assert cluster.copy(index=index).resumption == expected, (
            "it has no record after the previous one's gap"
        )


def test_a_fault_is_accepted_for_the_topics_that_are_named(cluster: Mirrors) -> None:
    cluster.create_mirror("other")
    cluster.follow(at_source("a"), at_source("b", source_id=b"b" * 16))
    cluster.follow(at_source("c", source_id=b"c" * 16), mirror="other")
    for name in "abc":
        cluster.report(name, fault=GAP, fault_first=1, fault_end=2)
    refused(cluster.accept("a", "c"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "'c' is no topic of mirror 'm'")
    assert all(cluster.copy(name).fault for name in "abc")
    cluster.accept("a")
    assert [cluster.copy(name).fault is None for name in "abc"] == [True, False, False]
    cluster.accept()
    assert [cluster.copy(name).fault is None for name in "abc"] == [True, True, False]


def test_nothing_is_accepted_after_a_promotion(cluster: Mirrors) -> None:
    cluster.follow(at_source())
    cluster.report(fault=GAP, fault_first=1, fault_end=2)
    cluster.promote()
    refused(cluster.accept(), ErrorCode.INVALID_REQUEST, "promoted")
    assert cluster.copy().fault is not None
