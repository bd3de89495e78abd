"""Failback in the controller: topics become copies in one command, and no local transaction ends in them."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.metadata_quorum.state.controller import Controller
from ottla.protocol.cluster.mirror_table import (
    FaultKind,
    MirrorPartition,
    MirrorPhase,
    Resumption,
    ResumptionKind,
)
from ottla.protocol.cluster.transaction_table import Phase
from ottla.protocol.errors import ErrorCode
from ottla.protocol.features import MIRROR, MIRROR_WITH_OFFSETS
from ottla.protocol.messages.broker_commands import BrokerFeature, RegisterBroker, RegisterBrokerResult
from ottla.protocol.messages.cluster_commands import FormCluster, InitialFeature
from ottla.protocol.messages.command import PlainResult
from ottla.protocol.messages.failback_commands import FailBackMirror
from ottla.protocol.messages.mirror_records import MirrorCutsTrimmedRecord, MirrorRecord, MirrorTopicRecord
from ottla.protocol.messages.quota_commands import FeatureLevel, UpdateFeatures, UpdateFeaturesResult

from .harness import ControllerWithBrokers, assigned
from .mirrored import THERE, Mirrors, at_source, epochs, failback_of
from .transactional import Transactions

CUT, KEPT = ResumptionKind.CUT, ResumptionKind.KEPT


def failback(cluster: ControllerWithBrokers, *names: str, common: int = 7, **changes: Any) -> FailBackMirror:
    return failback_of(cluster, names, common, changes.pop("mirror", "back"), **changes)


def refused(result: PlainResult, code: int, said: str) -> None:
    assert result.error_code == code, result
    assert said in result.error_message


@pytest.fixture
def cluster() -> Mirrors:
    """Return a cluster with topics "t" and "u", which belong to no mirror."""
    cluster = Mirrors()
    cluster.create(assigned("t", [1, 2], [2, 3]), assigned("u", [1]))
    return cluster


@pytest.mark.parametrize(("discards", "kind"), [(True, CUT), (False, KEPT)])
def test_all_topics_become_copies_that_go_on_where_both_are_alike(
    cluster: Mirrors, discards: bool, kind: ResumptionKind
) -> None:
    before = [cluster.partition("t", index).leader_epoch for index in (0, 1)]
    assert not cluster.do(failback(cluster, "t", "u", discards=discards), PlainResult).error_code
    mirror = cluster.machine.image.mirrors.by_name["back"]
    assert (mirror.phase, mirror.start) == (MirrorPhase.ACTIVE, -2)
    assert cluster.is_copy("t")
    assert cluster.is_copy("u")
    assert cluster.machine.image.mirrors.topics[cluster.topic_id("t")].source_topic_id == THERE
    for index, epoch in enumerate(before):
        assert cluster.partition("t", index).leader_epoch == epoch + 1
        resumption = Resumption(epoch + 1, 7, kind)
        assert cluster.copy("t", index) == MirrorPartition(lineage=((3, 0), (5, 4)), resumption=resumption)
    assert list(cluster.restored().image.records()) == list(cluster.machine.image.records())


def test_nothing_is_copied_before_all_topics_are_copies(cluster: Mirrors) -> None:
    """A broker may see any prefix of the records."""
    applied = cluster.apply(failback(cluster, "t", "u"))
    records = [record for _, record in applied.records]
    assert isinstance(records[0], MirrorRecord)
    assert isinstance(records[-1], MirrorRecord)
    assert records[0].phase == MirrorPhase.PAUSED
    assert records[-1].phase == MirrorPhase.ACTIVE
    assert sum(isinstance(record, MirrorTopicRecord) for record in records[1:-1]) == 2


def test_topics_that_return_wait_for_the_first_cut(cluster: Mirrors) -> None:
    """Compaction depends on this from the first record by which they are copies."""
    assert not cluster.do(failback(cluster, "u"), PlainResult).error_code
    assert not cluster.machine.image.mirror_cuts.are_awaited("back")
    applied = cluster.apply(failback(cluster, "t", mirror="again", awaits_cuts=True))
    assert cluster.machine.image.mirror_cuts.are_awaited("again")
    kinds = [type(record) for _, record in applied.records]
    assert kinds.index(MirrorCutsTrimmedRecord) < kinds.index(MirrorTopicRecord)


def test_it_can_be_checked_alone(cluster: Mirrors) -> None:
    before = list(cluster.machine.image.records())
    assert not cluster.do(failback(cluster, "t", is_checked_only=True), PlainResult).error_code
    assert list(cluster.machine.image.records()) == before


def test_a_topic_that_was_a_copy_and_was_promoted_becomes_one_again(cluster: Mirrors) -> None:
    cluster.create_mirror()
    cluster.follow(at_source("v"))
    cluster.report("v", epochs=epochs((1, 0)))
    cluster.promote()
    cluster.delete_mirror()
    assert not cluster.do(failback(cluster, "v"), PlainResult).error_code
    epoch = cluster.partition("v").leader_epoch
    assert cluster.copy("v") == MirrorPartition(
        lineage=((3, 0), (5, 4)), resumption=Resumption(epoch, 7, KEPT)
    )
    cluster.report("v", fault=FaultKind.DIVERGED, fault_first=7, fault_end=9)
    assert not cluster.accept("v", mirror="back").error_code
    assert cluster.copy("v").resumption == Resumption(epoch + 1, 7)


def test_what_has_changed_since_it_was_looked_at_is_looked_at_again(cluster: Mirrors) -> None:
    seen = failback(cluster, "t")
    cluster.fence(1)
    result = cluster.do(seen, PlainResult)
    refused(result, ErrorCode.NOT_LEADER_OR_FOLLOWER, "'t' has other leaders by now")
    assert ErrorCode.of(result.error_code).retriable
    assert not cluster.machine.image.mirrors.by_name


def test_what_cannot_be_is_refused(cluster: Mirrors) -> None:
    refused(cluster.do(failback(cluster), PlainResult), ErrorCode.INVALID_REQUEST, "0 partitions")
    twice = failback(cluster, "t", "t")
    refused(cluster.do(twice, PlainResult), ErrorCode.INVALID_REQUEST, "named twice")
    below = failback(cluster, "t", common=-1)
    refused(cluster.do(below, PlainResult), ErrorCode.INVALID_REQUEST, "'t' cannot be")
    itself = failback(cluster, "t", source_cluster_id="here")
    refused(cluster.do(itself, PlainResult), ErrorCode.INVALID_REQUEST, "cannot be a copy of itself")
    unknown = failback(cluster, "t")
    unknown.copies[0].topic_id = b"x" * 16
    refused(cluster.do(unknown, PlainResult), ErrorCode.UNKNOWN_TOPIC_ID, "any more")
    assert not cluster.do(failback(cluster, "t"), PlainResult).error_code
    again = failback(cluster, "t", mirror="other")
    refused(cluster.do(again, PlainResult), ErrorCode.POLICY_VIOLATION, "copy of mirror 'back'")
    refused(cluster.do(failback(cluster, "u"), PlainResult), ErrorCode.DUPLICATE_RESOURCE, "already")


def test_it_needs_a_level_that_all_nodes_know() -> None:
    cluster = Mirrors(level=1)
    cluster.create(assigned("t", [1]))
    refused(
        cluster.do(failback(cluster, "t"), PlainResult),
        ErrorCode.UNSUPPORTED_VERSION,
        f"{MIRROR} at level 2",
    )


def test_the_level_stays_while_there_are_topics_that_have_returned() -> None:
    cluster = Mirrors(0)
    command = RegisterBroker(
        broker_id=1, incarnation=b"i" * 16, features=[BrokerFeature(name=MIRROR, most=MIRROR_WITH_OFFSETS)]
    )
    assert not cluster.do(command, RegisterBrokerResult).error_code
    cluster.unfence(1)
    cluster.create(assigned("t", [1]), assigned("u", [1]))
    update = UpdateFeatures(
        updates=[FeatureLevel(feature=MIRROR, level=1, upgrade_type=2)], validate_only=True
    )
    assert not cluster.do(update, UpdateFeaturesResult).error_code
    cluster.do(failback(cluster, "t", "u"), PlainResult)
    kept = cluster.do(update, UpdateFeaturesResult)
    assert kept.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "There are 2 topics" in kept.error_message


class ReturningTransactions(Transactions):
    """A cluster with topics "t" and "u", and mirrors."""

    def __init__(self) -> None:
        super().__init__()
        features = [InitialFeature(feature=MIRROR, level=2)]
        self.do(FormCluster(cluster_id="here", features=features), PlainResult)
        self.create(assigned("u", [1, 2]))

    def outstanding(self, topic: str) -> set[tuple[bytes, int]]:
        transactions = self.machine.image.transactions
        return {place for place in self.places(0, 1, 2, 3, topic=topic) if transactions.at(place)}


@pytest.mark.parametrize("recovers", [True, False])
def test_an_open_transaction_is_aborted_and_waits_for_no_marker_in_a_copy(recovers: bool) -> None:
    cluster = ReturningTransactions()
    found = cluster.init(recovers=recovers)
    who = (found.producer_id, found.producer_epoch)
    cluster.add(who, cluster.places(0, 2) | cluster.places(0, topic="u"))
    assert not cluster.do(failback(cluster, "t"), PlainResult).error_code
    assert cluster.state().phase is Phase.PREPARE_ABORT
    assert cluster.outstanding("t") == set()
    assert cluster.outstanding("u") == cluster.places(0, topic="u")
    cluster.machine.check()
    refusal = cluster.add(who, cluster.places(1))
    assert refusal.error_code


def test_a_transaction_that_is_open_in_copies_alone_is_over_at_once() -> None:
    cluster = ReturningTransactions()
    who = cluster.begin()
    cluster.add(who, cluster.places(0, 2))
    assert not cluster.do(failback(cluster, "t"), PlainResult).error_code
    assert cluster.state().phase is Phase.COMPLETE_ABORT
    assert not cluster.outstanding("t")
    restored = Controller()
    restored.restore(list(cluster.machine.snapshot()))
    restored.check()


def test_what_was_committed_gets_its_markers_first_or_is_discarded() -> None:
    cluster = ReturningTransactions()
    who = cluster.begin()
    cluster.add(who, cluster.places(0))
    cluster.end(who)
    assert cluster.state().phase is Phase.PREPARE_COMMIT
    result = cluster.do(failback(cluster, "t"), PlainResult)
    refused(result, ErrorCode.CONCURRENT_TRANSACTIONS, "marker is not in t-0 yet")
    assert ErrorCode.of(result.error_code).retriable
    assert not cluster.do(failback(cluster, "t", discards=True), PlainResult).error_code
    assert cluster.state().phase is Phase.COMPLETE_COMMIT
    assert not cluster.outstanding("t")


def test_what_is_being_aborted_needs_no_markers_any_more() -> None:
    cluster = ReturningTransactions()
    who = cluster.begin()
    cluster.add(who, cluster.places(0))
    cluster.end(who, commits=False)
    assert not cluster.do(failback(cluster, "t"), PlainResult).error_code
    assert cluster.state().phase is Phase.COMPLETE_ABORT
