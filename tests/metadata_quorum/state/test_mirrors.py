"""Mirrors in the controller: their life, the topics that follow, and what stops a copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.metadata_quorum.state import topics as topics_module
from ottla.metadata_quorum.state.mirrors import NAME_LENGTH_MAX, OPTIONS_MAX, TEXT_LENGTH_MAX
from ottla.protocol.errors import ErrorCode
from ottla.protocol.features import MIRROR
from ottla.protocol.messages import transaction_commands as t
from ottla.protocol.messages.broker_commands import RegisterBroker, RegisterBrokerResult
from ottla.protocol.messages.command import PlainResult
from ottla.protocol.messages.config_commands import ResourceType
from ottla.protocol.messages.metadata_records import BrokerFeature, PartitionRecord
from ottla.protocol.messages.mirror_commands import AlterMirror
from ottla.protocol.messages.mirror_records import MirrorOption, MirrorPartitionRecord, MirrorRecord
from ottla.protocol.messages.quota_commands import FeatureLevel, UpdateFeatures, UpdateFeaturesResult
from ottla.protocol.messages.topic_commands import (
    CreatePartitions,
    CreatePartitionsResult,
    DeleteTopics,
    DeleteTopicsResult,
    MorePartitions,
    TopicResult,
)
from ottla.protocol.mirror_table import NO_EPOCH, FaultKind, Mirror, MirrorPhase, Resumption
from ottla.protocol.schema import ZERO_UUID
from ottla.protocol.transaction_table import by_topic

from .harness import topic
from .mirrored import SOURCE, Mirrors, at_source, epochs

ACTIVE, PAUSED, PROMOTED = MirrorPhase.ACTIVE, MirrorPhase.PAUSED, MirrorPhase.PROMOTED
GAP, DIVERGED, MADE_ANEW = FaultKind.GAP, FaultKind.DIVERGED, FaultKind.MADE_ANEW


@pytest.fixture
def cluster() -> Mirrors:
    """With mirror "m"."""
    cluster = Mirrors()
    assert not cluster.create_mirror().error_code
    return cluster


def refused(result: PlainResult, code: int, said: str) -> None:
    assert result.error_code == code, result
    assert said in result.error_message


# The life of a mirror


def test_a_mirror_is_active_from_the_beginning() -> None:
    cluster = Mirrors()
    options = [MirrorOption(name="security_protocol", value="SSL")]
    made = cluster.create_mirror("a.B-1_", topics="o.*", groups="g.*", start=-1, options=options)
    assert not made.error_code
    expected = Mirror(
        "a.B-1_", SOURCE, "there:9092", "o.*", "g.*", -1, ACTIVE, (("security_protocol", "SSL"),)
    )
    assert cluster.machine.image.mirrors.by_name == {"a.B-1_": expected}
    assert "SSL" not in repr(expected), "options may be secrets"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": ""}, "1 to 100 ASCII letters"),
        ({"name": "x" * (NAME_LENGTH_MAX + 1)}, "1 to 100 ASCII letters"),
        ({"name": "a b"}, "not 'a b'"),
        ({"name": "ö"}, "ASCII"),
        ({"source_cluster_id": "here"}, "there:9092 is this cluster"),
        ({"source_cluster_id": ""}, "id of its source"),
        ({"bootstrap_servers": ""}, "bootstrap servers"),
        ({"topics": ""}, "pattern of topics"),
        ({"topics": "x" * (TEXT_LENGTH_MAX + 1)}, "16384 characters"),
        ({"groups": "x" * (TEXT_LENGTH_MAX + 1)}, "16384 characters"),
        ({"start": -3}, "start -3"),
        ({"options": [MirrorOption(name=str(one)) for one in range(OPTIONS_MAX + 1)]}, "51 options"),
    ],
)
def test_what_cannot_be_a_mirror_is_refused(changes: dict[str, Any], said: str) -> None:
    cluster = Mirrors()
    refused(cluster.create_mirror(**changes), ErrorCode.INVALID_REQUEST, said)
    assert not cluster.machine.image.mirrors.by_name


def test_two_mirrors_have_two_names(cluster: Mirrors) -> None:
    refused(cluster.create_mirror(topics="x"), ErrorCode.DUPLICATE_RESOURCE, "a mirror 'm' already")
    assert cluster.machine.image.mirrors.by_name["m"].topics == ".*"
    assert not cluster.create_mirror("other").error_code


@pytest.mark.parametrize(
    ("before", "after", "code"),
    [
        (ACTIVE, ACTIVE, 0),
        (ACTIVE, PAUSED, 0),
        (ACTIVE, PROMOTED, 0),
        (PAUSED, ACTIVE, 0),
        (PAUSED, PAUSED, 0),
        (PAUSED, PROMOTED, 0),
        (PROMOTED, ACTIVE, ErrorCode.INVALID_REQUEST),
        (PROMOTED, PAUSED, ErrorCode.INVALID_REQUEST),
        (PROMOTED, PROMOTED, 0),
        (ACTIVE, 0, ErrorCode.INVALID_REQUEST),
        (ACTIVE, 4, ErrorCode.INVALID_REQUEST),
    ],
)
def test_no_way_leads_back_from_a_promotion(
    cluster: Mirrors, before: MirrorPhase, after: int, code: int
) -> None:
    assert not cluster.alter(before).error_code
    applied = cluster.apply(AlterMirror(name="m", phase=after))
    expected = before if code else after
    assert cluster.machine.image.mirrors.by_name["m"].phase == expected
    assert bool(applied.records) == (expected != before), "what is so already changes nothing"
    assert cluster.alter(after).error_code == code


@pytest.mark.parametrize(
    "ask",
    [
        lambda cluster: cluster.alter(PAUSED, "x"),
        lambda cluster: cluster.delete_mirror("x"),
        lambda cluster: cluster.accept(mirror="x"),
        lambda cluster: cluster.follow_all([], "x"),
    ],
    ids=["alter", "delete", "accept", "follow"],
)
def test_a_mirror_that_is_not_there_is_named(cluster: Mirrors, ask: Callable[[Mirrors], Any]) -> None:
    refused(ask(cluster), ErrorCode.RESOURCE_NOT_FOUND, "there is no mirror 'x'")


def test_a_mirror_with_copies_goes_only_after_its_promotion(cluster: Mirrors) -> None:
    cluster.follow(at_source("a"), at_source("b", source_id=b"b" * 16))
    refused(cluster.delete_mirror(), ErrorCode.INVALID_REQUEST, "has 2 topics that take no records")
    cluster.promote()
    assert not cluster.delete_mirror().error_code
    assert not cluster.machine.image.mirrors.by_name
    assert {"a", "b"} <= cluster.machine.image.topics.keys()


def test_a_mirror_without_copies_goes_at_any_time(cluster: Mirrors) -> None:
    assert not cluster.alter(PAUSED).error_code
    assert not cluster.delete_mirror().error_code
    assert not cluster.create_mirror().error_code


# Levels


def set_level(cluster: Mirrors, level: int) -> UpdateFeaturesResult:
    update = FeatureLevel(feature=MIRROR, level=level, upgrade_type=1 if level else 2)
    return cluster.do(UpdateFeatures(updates=[update]), UpdateFeaturesResult)


def register(cluster: Mirrors, broker_id: int, most: int, incarnation: int = 0) -> RegisterBrokerResult:
    features = [BrokerFeature(name=MIRROR, most=most)] if most else []
    command = RegisterBroker(broker_id=broker_id, incarnation=bytes([incarnation]) * 16, features=features)
    return cluster.do(command, RegisterBrokerResult)


def test_there_are_no_mirrors_before_the_upgrade() -> None:
    cluster = Mirrors(0, level=0)
    refused(cluster.create_mirror(), ErrorCode.UNSUPPORTED_VERSION, f"the feature {MIRROR} at level 1")
    assert not set_level(cluster, 1).error_code
    assert not cluster.create_mirror().error_code


def test_the_level_stays_while_there_are_mirrors() -> None:
    cluster = Mirrors(0)
    cluster.create_mirror()
    kept = set_level(cluster, 0)
    assert kept.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "There are 1 mirrors" in kept.error_message
    cluster.delete_mirror()
    assert not set_level(cluster, 0).error_code


def test_no_broker_that_does_not_know_mirrors_meets_one() -> None:
    cluster = Mirrors(0, level=0)
    assert not register(cluster, 1, 1).error_code
    assert not register(cluster, 2, 0).error_code
    unaware = set_level(cluster, 1)
    assert unaware.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "broker 2" in unaware.error_message
    assert not register(cluster, 2, 1, incarnation=1).error_code
    assert not set_level(cluster, 1).error_code
    late = register(cluster, 3, 0)
    assert late.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert f"{MIRROR} is at level 1" in late.error_message


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


# What nobody may do to a copy


def more_partitions(cluster: Mirrors) -> TopicResult:
    command = CreatePartitions(topics=[MorePartitions(name="t", count=4)])
    return cluster.do(command, CreatePartitionsResult).topics[0]


def deletion_by_name(cluster: Mirrors) -> TopicResult:
    return cluster.do(DeleteTopics(names=["t"]), DeleteTopicsResult).topics[0]


def deletion_by_id(cluster: Mirrors) -> TopicResult:
    return cluster.do(DeleteTopics(topic_ids=[cluster.topic_id("t")]), DeleteTopicsResult).topics[0]


def transaction(cluster: Mirrors) -> t.AddToTransactionResult:
    origin = t.ClientOrigin(broker_id=1, broker_epoch=cluster.epoch(1), connection=1)
    begun = cluster.do(
        t.InitTransactionalId(transactional_id="x", timeout_ms=1000, origin=origin),
        t.InitTransactionalIdResult,
    )
    command = t.AddToTransaction(
        transactional_id="x",
        producer_id=begun.producer_id,
        producer_epoch=begun.producer_epoch,
        topics=by_topic({(cluster.topic_id("t"), 0)}),
        origin=origin,
    )
    return cluster.do(command, t.AddToTransactionResult)


@pytest.mark.parametrize("phase", [ACTIVE, PAUSED])
@pytest.mark.parametrize("ask", [more_partitions, deletion_by_name, deletion_by_id, transaction])
def test_a_copy_follows_its_source_and_nobody_else(
    cluster: Mirrors, ask: Callable[[Mirrors], Any], phase: MirrorPhase
) -> None:
    cluster.follow(at_source())
    cluster.alter(phase)
    before = list(cluster.machine.image.topics["t"].partitions)
    denied = ask(cluster)
    assert denied.error_code == ErrorCode.POLICY_VIOLATION
    assert "topic 't' is the copy of mirror 'm'" in denied.error_message
    assert list(cluster.machine.image.topics["t"].partitions) == before
    cluster.promote()
    assert not ask(cluster).error_code


# Promotion


def test_a_promotion_begins_one_leader_epoch_in_every_partition_of_the_mirror(cluster: Mirrors) -> None:
    cluster.create_mirror("other")
    cluster.create(topic("ours"))
    cluster.follow(at_source("a", 2, 3), at_source("b", 3, 1, b"b" * 16))
    cluster.follow(at_source("c", 1, 1, b"c" * 16), mirror="other")
    cluster.report("a", epochs=epochs((4, 0)), index=1)
    cluster.fence(1)
    before = {
        (name, index): state
        for name, one in cluster.machine.image.topics.items()
        for index, state in one.partitions.items()
    }
    applied = cluster.apply(AlterMirror(name="m", phase=PROMOTED))
    for (name, index), old in before.items():
        new, rises = cluster.partition(name, index), name in ("a", "b")
        assert (new.leader, new.isr) == (old.leader, old.isr)
        assert new.leader_epoch == old.leader_epoch + rises
        assert new.partition_epoch == old.partition_epoch + rises
        assert cluster.copy(name, index).promoted_epoch == (new.leader_epoch if rises else NO_EPOCH)
    assert any(state.leader == -1 for (name, _), state in before.items() if name == "b"), "a case of its own"
    assert cluster.copy("a", 1).lineage == ((4, 0),)
    kinds = [type(record) for _, record in applied.records]
    assert kinds == [MirrorPartitionRecord, PartitionRecord] * 5 + [MirrorRecord]
    assert [cluster.is_copy(name) for name in "abc"] == [False, False, True]


# Reports of leaders


def test_the_lineage_of_a_copy_only_rises(cluster: Mirrors) -> None:
    cluster.follow(at_source())
    for told, expected in (
        (((3, 0),), ((3, 0),)),
        (((3, 0), (5, 40)), ((3, 0), (5, 40))),
        (((4, 50),), ((3, 0), (5, 40))),
        (((6, 39),), ((3, 0), (5, 40))),
        (((6, 40), (7, 40), (7, 90)), ((3, 0), (5, 40), (6, 40), (7, 40))),
    ):
        cluster.report(epochs=epochs(*told))
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
    assert cluster.copy().resumption == Resumption(epoch + 1, 1000), "it was told in an epoch that is over"
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
    assert cluster.copy().lineage == (), "what comes with a fault is not copied"


def test_a_kind_of_fault_that_a_later_program_knows_stops_too(cluster: Mirrors) -> None:
    cluster.follow(at_source())
    cluster.report(fault=77, fault_first=1, fault_end=2, fault_reason="news")
    fault = cluster.copy().fault
    assert fault is not None
    assert (fault.kind, fault.reason) == (FaultKind.UNREADABLE, "news")


@pytest.mark.parametrize("told", [{"epochs": epochs((1, 0))}, {"begins_at": 5}, {"fault": int(GAP)}])
@pytest.mark.parametrize("who", ["former epoch", "follower", "paused", "promoted", "no copy", "gone", "no partition"])
def test_reports_that_count_for_nothing(cluster: Mirrors, told: dict[str, Any], who: str) -> None:
    cluster.follow(at_source(factor=3))
    cluster.create(topic("ours"))
    changes: dict[str, Any] = {}
    match who:
        case "former epoch":
            changes = {"leader_epoch": cluster.partition().leader_epoch - 1}
        case "follower":
            changes = {"broker": next(one for one in (1, 2, 3) if one != cluster.partition().leader)}
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
    cluster.report(**told, **changes)
    assert cluster.machine.image.offset == offset


# What a person accepts


def test_behind_a_gap_the_copy_goes_on_in_a_new_epoch(cluster: Mirrors) -> None:
    cluster.follow(at_source(partitions=2))
    cluster.report(epochs=epochs((1, 0)))
    cluster.report(fault=GAP, fault_first=10, fault_end=20)
    before = [cluster.partition(index=index) for index in (0, 1)]
    assert not cluster.accept(is_checked_only=True).error_code
    assert cluster.copy().fault is not None
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
