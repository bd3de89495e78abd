"""Cuts of mirrors in the controller: rounds that copies reach, and a promotion at the newest round that all have
reached.
"""

from __future__ import annotations

from typing import Any

import pytest

from ottla.metadata_quorum.state.mirror_cuts import CUT_MAX
from ottla.protocol.cluster.mirror_cuts import ROUNDS_MAX
from ottla.protocol.cluster.mirror_table import NO_EPOCH, NO_ROUND, FaultKind, MirrorPhase, Resumption
from ottla.protocol.errors import ErrorCode
from ottla.protocol.features import MIRROR
from ottla.protocol.messages.command import PlainResult
from ottla.protocol.messages.metadata_records import PartitionRecord
from ottla.protocol.messages.mirror_commands import PromoteMirrorAtCut, ReachedCut, ReportMirrorCuts
from ottla.protocol.messages.mirror_records import MirrorPartitionRecord, MirrorRecord
from ottla.protocol.messages.quota_commands import FeatureLevel, UpdateFeatures, UpdateFeaturesResult
from ottla.protocol.messages.transaction_records import CommitIndexRecord

from .harness import topic
from .mirrored import Mirrors, at_source

PAUSED, PROMOTED = MirrorPhase.PAUSED, MirrorPhase.PROMOTED
GAP = FaultKind.GAP


@pytest.fixture
def cluster() -> Mirrors:
    """Return a cluster with mirror "m" and the copies t-0 and t-1."""
    cluster = Mirrors()
    assert not cluster.create_mirror().error_code
    cluster.follow(at_source(partitions=2, factor=3))
    return cluster


def refused(result: Any, code: int, said: str) -> None:
    assert result.error_code == code, result
    assert said in result.error_message


def numbers(cluster: Mirrors) -> list[int]:
    return [mirror_round.number for mirror_round in cluster.cuts().rounds]


# Rounds


def test_rounds_are_numbered_and_remember_their_cuts(cluster: Mirrors) -> None:
    for cut in (5, 5, 9):
        assert not cluster.announce(cut).error_code
    rounds = cluster.cuts().rounds
    assert [
        (mirror_round.number, mirror_round.cut, mirror_round.metadata_offset, mirror_round.time_ms)
        for mirror_round in rounds
    ] == [
        (0, 5, 105, 1005),
        (1, 5, 105, 1005),
        (2, 9, 109, 1009),
    ]


@pytest.mark.parametrize(("level", "is_told"), [(1, False), (2, True)])
def test_a_new_mirror_waits_for_its_first_round_where_nodes_know_rounds(level: int, is_told: bool) -> None:
    cluster = Mirrors(level=level)
    for name, awaits_cuts in (("m", True), ("of-kafka", False)):
        assert not cluster.create_mirror(name, awaits_cuts=awaits_cuts).error_code
    for image in (cluster.machine.image, cluster.restored().image):
        assert image.mirror_cuts.are_awaited("m") is is_told
        assert not image.mirror_cuts.are_awaited("of-kafka")
        assert not image.mirror_cuts.of("m").rounds
    cluster.delete_mirror()
    assert not cluster.machine.image.mirror_cuts.are_awaited("m")


def test_a_mirror_that_is_only_checked_waits_for_nothing() -> None:
    cluster = Mirrors()
    assert not cluster.create_mirror(awaits_cuts=True, is_checked_only=True).error_code
    assert not cluster.machine.image.mirror_cuts.are_awaited("m")


def test_the_first_round_of_a_mirror_that_waits_has_the_first_number() -> None:
    cluster = Mirrors()
    cluster.create_mirror(awaits_cuts=True)
    refused(cluster.promote_at_cut(), ErrorCode.INVALID_REQUEST, "has no cut")
    cluster.follow(at_source(partitions=1, factor=3))
    cluster.announce(5)
    assert numbers(cluster) == [0]


def test_a_round_is_whole_once_every_copy_has_reached_it(cluster: Mirrors) -> None:
    cluster.announce(5)
    assert cluster.whole() is None
    cluster.reach(0, 10)
    assert cluster.whole() is None
    cluster.reach(0, 20, index=1)
    assert cluster.whole() == 0


def test_what_is_before_the_newest_whole_round_is_forgotten(cluster: Mirrors) -> None:
    for cut in (5, 6, 7):
        cluster.announce(cut)
    cluster.reach(0, 10)
    cluster.reach(1, 11)
    cluster.reach(2, 12)
    cluster.reach(0, 20, index=1)
    assert numbers(cluster) == [0, 1, 2]
    cluster.reach(1, 21, index=1)
    assert (numbers(cluster), cluster.whole()) == ([1, 2], 1)
    assert cluster.cuts().reached[cluster.topic_id("t"), 0] == ((1, 11), (2, 12))


def test_one_command_tells_of_many_copies_and_rounds(cluster: Mirrors) -> None:
    cluster.announce(5)
    cluster.announce(6)
    reached = [
        ReachedCut(
            topic_id=cluster.topic_id("t"),
            partition=index,
            leader_epoch=cluster.partition(index=index).leader_epoch,
            number=number,
            offset=10 * index + number,
        )
        for index in (0, 1)
        for number in (0, 1)
    ]
    for broker in (1, 2, 3):
        assert not cluster.do(ReportMirrorCuts(broker_id=broker, partitions=reached), PlainResult).error_code
    assert cluster.whole() == 1
    assert [cluster.cuts().offset((cluster.topic_id("t"), index), 1) for index in (0, 1)] == [1, 11]


def test_no_more_rounds_are_under_way_than_copies_can_be_behind(cluster: Mirrors) -> None:
    for cut in range(ROUNDS_MAX + 3):
        assert not cluster.announce(cut).error_code
    assert len(numbers(cluster)) == ROUNDS_MAX
    for index in (0, 1):
        cluster.reach(2, 10, index=index)
    cluster.announce(99)
    assert cluster.cuts().rounds[-1].number == ROUNDS_MAX
    assert cluster.cuts().rounds[-1].cut == 99


def test_a_cut_that_was_asked_for_other_copies_is_none_for_these(cluster: Mirrors) -> None:
    assert not cluster.announce(5, copies=1).error_code
    assert numbers(cluster) == []


@pytest.mark.parametrize("phase", [PAUSED, PROMOTED])
def test_only_an_active_mirror_has_new_rounds(cluster: Mirrors, phase: MirrorPhase) -> None:
    cluster.announce(5)
    cluster.alter(phase)
    refused(cluster.announce(6), ErrorCode.INVALID_REQUEST, f"is {phase.name.lower()}")
    cluster.reach(0, 10)
    assert cluster.cuts().reached == {}


@pytest.mark.parametrize("cut", [-2, CUT_MAX])
def test_what_is_no_commit_index_is_no_cut(cluster: Mirrors, cut: int) -> None:
    refused(cluster.announce(cut), ErrorCode.INVALID_REQUEST, f"{cut} is no commit index")


def test_a_mirror_that_is_not_there_has_no_cuts(cluster: Mirrors) -> None:
    refused(cluster.announce(5, "x", copies=0), ErrorCode.RESOURCE_NOT_FOUND, "no mirror 'x'")
    refused(cluster.promote_at_cut("x"), ErrorCode.RESOURCE_NOT_FOUND, "no mirror 'x'")


def set_level(cluster: Mirrors, level: int, kind: int) -> UpdateFeaturesResult:
    update = FeatureLevel(feature=MIRROR, level=level, upgrade_type=kind)
    return cluster.do(UpdateFeatures(updates=[update]), UpdateFeaturesResult)


def test_there_are_no_cuts_before_the_upgrade_and_none_must_be_left_at_a_downgrade() -> None:
    cluster = Mirrors(0, level=1)
    cluster.create_mirror()
    refused(cluster.announce(5), ErrorCode.UNSUPPORTED_VERSION, f"the feature {MIRROR} at level 2")
    refused(cluster.promote_at_cut(), ErrorCode.INVALID_REQUEST, "has no cut")
    assert not set_level(cluster, 2, 1).error_code
    assert not cluster.announce(5).error_code
    refused(set_level(cluster, 1, 2), ErrorCode.INVALID_UPDATE_VERSION, "1 mirrors with cuts")
    cluster.delete_mirror()
    assert not set_level(cluster, 1, 2).error_code


@pytest.mark.parametrize(
    "who", ["former epoch", "follower", "faulted", "no copy", "gone", "no partition", "no round", "no offset"]
)
def test_reports_that_count_for_nothing(cluster: Mirrors, who: str) -> None:
    cluster.create(topic("ours"))
    cluster.announce(5)
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
        case "faulted":
            cluster.report(fault=GAP, fault_first=10, fault_end=20)
        case "no copy":
            changes = {"name": "ours"}
        case "gone":
            changes = {"topic_id": b"?" * 16}
        case "no partition":
            changes = {"partition": 2}
        case "no round":
            changes = {"number": 1}
        case "no offset":
            changes = {"offset": -1}
    offset = cluster.machine.image.offset
    cluster.reach(**{"number": 0, "offset": 10, **changes})
    assert cluster.machine.image.offset == offset


def test_where_a_copy_has_reached_a_round_is_told_once(cluster: Mirrors) -> None:
    cluster.announce(5)
    cluster.reach(0, 10)
    cluster.reach(0, 11)
    assert cluster.cuts().offset((cluster.topic_id("t"), 0), 0) == 10


# Changes of copies


def test_a_copy_of_what_came_into_being_later_has_reached_earlier_rounds_with_nothing(
    cluster: Mirrors,
) -> None:
    cluster.announce(5)
    cluster.announce(6)
    for index in (0, 1):
        cluster.reach(0, 10, index=index)
    cluster.follow(at_source(partitions=3, factor=3), at_source("u", source_id=b"u" * 16))
    assert cluster.whole() == 0
    for place in ((cluster.topic_id("t"), 2), (cluster.topic_id("u"), 0)):
        assert cluster.cuts().reached[place] == ((0, 0), (1, 0))
    cluster.announce(7)
    assert cluster.whole() == 0
    cluster.reach(1, 11)
    cluster.reach(1, 11, index=1)
    assert cluster.whole() == 1


def test_a_fault_keeps_what_was_reached_until_the_copy_goes_on_elsewhere(cluster: Mirrors) -> None:
    cluster.announce(5)
    for index in (0, 1):
        cluster.reach(0, 10, index=index)
    cluster.report(fault=FaultKind.DIVERGED, fault_first=5, fault_end=15)
    assert cluster.whole() == 0
    cluster.accept()
    assert cluster.whole() is None
    assert (cluster.topic_id("t"), 0) not in cluster.cuts().reached
    refused(cluster.promote_at_cut(), ErrorCode.INVALID_REQUEST, "all copies have reached: t-0 have not")
    cluster.reach(0, 5)
    assert cluster.whole() == 0


def test_a_leader_that_may_lack_records_has_reached_nothing(cluster: Mirrors) -> None:
    cluster.machine.image.configs[2, "t"] = {"unclean.leader.election.enable": "true"}
    cluster.announce(5)
    for index in (0, 1):
        cluster.reach(0, 10, index=index)
    for broker in (1, 2, 3):
        cluster.fence(broker)
    assert cluster.whole() == 0, "there is no leader, and nothing is lost yet"
    cluster.machine.image.check()
    last = {index: cluster.partition(index=index).isr for index in (0, 1)}
    other = next(broker_id for broker_id in (1, 2, 3) if all(broker_id not in isr for isr in last.values()))
    cluster.unfence(other)
    assert [cluster.partition(index=index).leader for index in (0, 1)] == [other, other]
    assert cluster.whole() is None
    assert cluster.cuts().reached == {}


# Promotion at a cut


def test_a_promotion_at_a_cut_ends_every_copy_there_in_one_command(cluster: Mirrors) -> None:
    cluster.create_mirror("other")
    cluster.follow(at_source("c", source_id=b"c" * 16), mirror="other")
    for cut in (5, 8):
        cluster.announce(cut)
    for number in (0, 1):
        cluster.reach(number, 10 + number, index=0)
    cluster.reach(0, 20, index=1)
    before = [cluster.partition(index=index) for index in (0, 1)]
    applied = cluster.apply(PromoteMirrorAtCut(name="m"))
    for index, offset in ((0, 10), (1, 20)):
        epoch = before[index].leader_epoch + 1
        assert cluster.partition(index=index).leader_epoch == epoch
        copy = cluster.copy(index=index)
        assert (copy.promoted_epoch, copy.resumption) == (epoch, Resumption(epoch, offset))
    kinds = [type(record) for _, record in applied.records]
    assert kinds == [CommitIndexRecord, *[MirrorPartitionRecord, PartitionRecord] * 2, MirrorRecord]
    assert cluster.machine.image.transactions.next_commit_index == 6
    assert cluster.machine.image.mirrors.by_name["m"].promoted_round == 0
    assert [cluster.is_copy(name) for name in "tc"] == [False, True]
    assert cluster.copy("c").promoted_epoch == NO_EPOCH


def test_who_asks_again_is_told_the_same_cut(cluster: Mirrors) -> None:
    cluster.announce(5)
    for index in (0, 1):
        cluster.reach(0, 10, index=index)
    result = cluster.promote_at_cut()
    assert (result.error_code, result.number, result.cut, result.time_ms) == (0, 0, 5, 1005)
    offset = cluster.machine.image.offset
    assert cluster.promote_at_cut() == result
    assert cluster.machine.image.offset == offset
    assert not cluster.alter(PROMOTED).error_code


def test_commit_indexes_never_fall(cluster: Mirrors) -> None:
    cluster.machine.image.transactions.next_commit_index = 100
    cluster.announce(5)
    for index in (0, 1):
        cluster.reach(0, 10, index=index)
    assert not cluster.promote_at_cut().error_code
    assert cluster.machine.image.transactions.next_commit_index == 100


def test_there_is_no_promotion_at_a_cut_that_a_copy_has_not_reached(cluster: Mirrors) -> None:
    refused(cluster.promote_at_cut(), ErrorCode.INVALID_REQUEST, "has no cut: its source has told none yet")
    cluster.announce(5)
    cluster.reach(0, 10)
    offset = cluster.machine.image.offset
    refused(cluster.promote_at_cut(), ErrorCode.INVALID_REQUEST, "all copies have reached: t-1 have not")
    assert cluster.machine.image.offset == offset
    many = Mirrors()
    many.create_mirror()
    many.follow(at_source(partitions=8))
    many.announce(5)
    refused(many.promote_at_cut(), ErrorCode.INVALID_REQUEST, "t-0, t-1, t-2, t-3, t-4 and 3 more have not")


def test_a_paused_mirror_is_promoted_at_the_cut_that_it_has(cluster: Mirrors) -> None:
    cluster.announce(5)
    for index in (0, 1):
        cluster.reach(0, 10, index=index)
    cluster.alter(PAUSED)
    assert cluster.promote_at_cut().cut == 5


def test_what_is_promoted_at_no_cut_is_at_none_afterwards(cluster: Mirrors) -> None:
    cluster.announce(5)
    for index in (0, 1):
        cluster.reach(0, 10, index=index)
    cluster.promote()
    assert cluster.machine.image.mirrors.by_name["m"].promoted_round == NO_ROUND
    assert cluster.copy().resumption is None
    refused(cluster.promote_at_cut(), ErrorCode.INVALID_REQUEST, "promoted already, at no cut")


def test_cuts_go_with_their_mirror_and_come_back_with_a_snapshot(cluster: Mirrors) -> None:
    for cut in (5, 6, 7):
        cluster.announce(cut)
    for index in (0, 1):
        cluster.reach(1, 10, index=index)
    restored = cluster.restored()
    assert restored.image.mirror_cuts == cluster.machine.image.mirror_cuts
    assert list(restored.image.records()) == list(cluster.machine.image.records())
    cluster.promote()
    assert cluster.cuts().rounds
    cluster.delete_mirror()
    assert cluster.machine.image.mirror_cuts.by_mirror == {}
