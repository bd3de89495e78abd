"""Mirrors in the controller: their life, forbidden changes to their topics, and promotion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.metadata_quorum.state.mirrors import NAME_LENGTH_MAX, OPTIONS_MAX, TEXT_LENGTH_MAX
from ottla.protocol.cluster.mirror_table import NO_EPOCH, FaultKind, Mirror, MirrorPhase
from ottla.protocol.cluster.transaction_table import by_topic
from ottla.protocol.errors import ErrorCode
from ottla.protocol.features import MIRROR
from ottla.protocol.messages import transaction_commands as t
from ottla.protocol.messages.broker_commands import RegisterBroker, RegisterBrokerResult
from ottla.protocol.messages.command import PlainResult
from ottla.protocol.messages.metadata_records import BrokerFeature, PartitionRecord
from ottla.protocol.messages.mirror_commands import AlterMirror, LimitMirror
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

from .harness import topic
from .mirrored import SOURCE, Mirrors, at_source, epochs

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
        ({"options": [MirrorOption(name=str(number)) for number in range(OPTIONS_MAX + 1)]}, "51 options"),
    ],
)
def test_what_cannot_be_a_mirror_is_refused(changes: dict[str, Any], said: str) -> None:
    cluster = Mirrors()
    refused(cluster.create_mirror(**changes), ErrorCode.INVALID_REQUEST, said)
    assert not cluster.machine.image.mirrors.by_name


def test_to_check_makes_no_mirror(cluster: Mirrors) -> None:
    assert not cluster.create_mirror("other", is_checked_only=True).error_code
    assert cluster.create_mirror(is_checked_only=True).error_code == ErrorCode.DUPLICATE_RESOURCE
    assert list(cluster.machine.image.mirrors.by_name) == ["m"]


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
    assert bool(applied.records) == (expected != before), "an unchanged setting has no effect"
    assert cluster.alter(after).error_code == code


def test_a_source_is_reached_elsewhere_and_otherwise(cluster: Mirrors) -> None:
    def known() -> tuple[str, tuple[tuple[str, str], ...]]:
        mirror = cluster.machine.image.mirrors.by_name["m"]
        assert (mirror.topics, mirror.phase, mirror.source_cluster_id) == (".*", ACTIVE, SOURCE)
        return mirror.bootstrap_servers, mirror.options

    def options(value: str) -> list[MirrorOption]:
        return [MirrorOption(name="sasl_plain_password", value=value)]

    assert not cluster.reconnect(options=options("a")).error_code
    assert known() == ("there:9092", (("sasl_plain_password", "a"),))
    assert not cluster.reconnect(bootstrap_servers="elsewhere:9092", options=options("b")).error_code
    assert known() == ("elsewhere:9092", (("sasl_plain_password", "b"),))
    assert not cluster.reconnect(options=options("c"), replaces=options("a")).error_code
    assert known()[1] == (("sasl_plain_password", "b"),), "it was changed meanwhile"
    assert not cluster.reconnect(options=options("c"), replaces=options("b")).error_code
    assert known() == ("elsewhere:9092", (("sasl_plain_password", "c"),))
    many = [MirrorOption(name=str(number)) for number in range(OPTIONS_MAX + 1)]
    refused(cluster.reconnect(options=many), ErrorCode.INVALID_REQUEST, "51 options")


@pytest.mark.parametrize(
    "ask",
    [
        lambda cluster: cluster.reconnect("x"),
        lambda cluster: cluster.alter(PAUSED, "x"),
        lambda cluster: cluster.delete_mirror("x"),
        lambda cluster: cluster.accept(mirror="x"),
        lambda cluster: cluster.follow_all([], "x"),
    ],
    ids=["reconnect", "alter", "delete", "accept", "follow"],
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


def test_a_new_mirror_of_the_same_name_has_nothing_to_do_with_what_was_promoted(cluster: Mirrors) -> None:
    cluster.follow(at_source())
    cluster.promote()
    cluster.delete_mirror()
    assert not cluster.create_mirror().error_code
    assert not cluster.is_copy()
    (result,) = cluster.follow(at_source())
    assert result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert "'t' here, which is of no mirror" in result.error_message


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


# Forbidden changes to a copy


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
        for name, topic_state in cluster.machine.image.topics.items()
        for index, state in topic_state.partitions.items()
    }
    applied = cluster.apply(AlterMirror(name="m", phase=PROMOTED))
    for (name, index), old in before.items():
        new, rises = cluster.partition(name, index), name in ("a", "b")
        assert (new.leader, new.isr) == (old.leader, old.isr)
        assert new.leader_epoch == old.leader_epoch + rises
        assert new.partition_epoch == old.partition_epoch + rises
        assert cluster.copy(name, index).promoted_epoch == (new.leader_epoch if rises else NO_EPOCH)
    assert any(state.leader == -1 for (name, _), state in before.items() if name == "b"), (
        "the leaderless partition is a separate case"
    )
    assert cluster.copy("a", 1).lineage == ((4, 0),)
    kinds = [type(record) for _, record in applied.records]
    assert kinds == [MirrorPartitionRecord, PartitionRecord] * 5 + [MirrorRecord]
    assert [cluster.is_copy(name) for name in "abc"] == [False, False, True]


# Bandwidth


def test_a_mirror_is_limited_when_it_is_made_or_later(cluster: Mirrors) -> None:
    assert cluster.machine.image.mirrors.by_name["m"].bandwidth == 0
    cluster.create_mirror("n", bandwidth=5_000)
    assert not cluster.do(LimitMirror(name="m", bandwidth=7_000), PlainResult).error_code
    cluster.machine = cluster.restored()
    assert {name: mirror.bandwidth for name, mirror in cluster.machine.image.mirrors.by_name.items()} == {
        "m": 7_000,
        "n": 5_000,
    }
    cluster.promote()
    assert cluster.machine.image.mirrors.by_name["m"].bandwidth == 7_000
    assert not cluster.do(LimitMirror(name="n"), PlainResult).error_code
    assert cluster.machine.image.mirrors.by_name["n"].bandwidth == 0


def test_a_limit_that_cannot_be_is_refused(cluster: Mirrors) -> None:
    refused(cluster.create_mirror("n", bandwidth=-1), ErrorCode.INVALID_REQUEST, "-1 bytes/s")
    result = cluster.do(LimitMirror(name="nosuch", bandwidth=1), PlainResult)
    refused(result, ErrorCode.RESOURCE_NOT_FOUND, "'nosuch'")


def test_a_limit_needs_a_level_that_all_nodes_know_and_keeps_it() -> None:
    cluster = Mirrors(0, level=1)
    cluster.create_mirror()
    limited = LimitMirror(name="m", bandwidth=1)
    refused(cluster.do(limited, PlainResult), ErrorCode.UNSUPPORTED_VERSION, f"{MIRROR} at level 2")
    assert not set_level(cluster, 2).error_code
    assert not cluster.do(limited, PlainResult).error_code
    update = FeatureLevel(feature=MIRROR, level=1, upgrade_type=2)
    kept = cluster.do(UpdateFeatures(updates=[update]), UpdateFeaturesResult)
    assert kept.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "1 mirrors with a limit" in kept.error_message
