"""Committed offsets of a mirror's source in the controller: copied, due after a promotion at a cut, reported, and
taken.
"""

from __future__ import annotations

from typing import Any

import pytest

from ottla.protocol.cluster.mirror_offsets import MirrorOffsetsDue
from ottla.protocol.cluster.mirror_table import MirrorPhase, offsets_copy
from ottla.protocol.errors import ErrorCode
from ottla.protocol.features import MIRROR, MIRROR_WITH_CUTS
from ottla.protocol.messages.broker_commands import UnregisterBroker
from ottla.protocol.messages.command import PlainResult
from ottla.protocol.messages.mirror_commands import ReportOffsetsTaken, TakenOffsets, TellMirrorOffsets
from ottla.protocol.messages.mirror_records import MirroredOffset
from ottla.protocol.messages.quota_commands import FeatureLevel, UpdateFeatures, UpdateFeaturesResult
from ottla.protocol.messages.topic_commands import DeleteTopics, DeleteTopicsResult
from ottla.protocol.wire.schema import ZERO_UUID

from .harness import topic
from .mirrored import Mirrors, at_source

COPY = offsets_copy("m")
OWN = "__consumer_offsets"
GROUPS = "g.*"


@pytest.fixture
def cluster() -> Mirrors:
    """Return a cluster whose mirror "m" copies t-0 and two partitions of offsets. Two partitions have local offsets."""
    cluster = Mirrors()
    assert not cluster.create_mirror(groups=GROUPS).error_code
    results = cluster.follow(
        at_source(factor=3), at_source(COPY, partitions=2, factor=3, source_id=b"o" * 16)
    )
    assert not any(result.error_code for result in results), results
    cluster.create(topic(OWN, partitions=2, factor=3))
    return cluster


def promote(cluster: Mirrors, *, has_offsets: bool = True) -> None:
    cluster.announce(5, has_offsets=has_offsets)
    cluster.reach(0, 40)
    for index in (0, 1):
        cluster.reach(0, 7, COPY, index)
    assert not cluster.promote_at_cut().error_code


def due(cluster: Mirrors) -> MirrorOffsetsDue | None:
    return cluster.machine.image.mirror_offsets.due.get("m")


def offset(cluster: Mirrors, group: str, number: int) -> MirroredOffset:
    return MirroredOffset(group=group, topic_id=cluster.topic_id("t"), offset=number)


def tell(cluster: Mirrors, index: int, *offsets: MirroredOffset, is_last: bool = True, **fields: Any) -> None:
    state = cluster.partition(COPY, index)
    values = {
        "broker_id": state.leader,
        "topic_id": cluster.topic_id(COPY),
        "partition": index,
        "leader_epoch": state.leader_epoch,
        **fields,
    }
    command = TellMirrorOffsets(offsets=list(offsets), is_last=is_last, **values)
    assert not cluster.do(command, PlainResult).error_code


def take(cluster: Mirrors, *indexes: int, behind: int = 0) -> None:
    """Report as the leaders, or as leaders `behind` epochs ago, that groups have their offsets."""
    for index in indexes:
        state = cluster.partition(OWN, index)
        taken = TakenOffsets(partition=index, leader_epoch=state.leader_epoch - behind)
        command = ReportOffsetsTaken(
            broker_id=state.leader, mirror="m", topic_id=cluster.topic_id(OWN), partitions=[taken]
        )
        assert not cluster.do(command, PlainResult).error_code


def test_what_is_told_is_kept_until_all_have_it(cluster: Mirrors) -> None:
    promote(cluster)
    tell(cluster, 0, offset(cluster, "g1", 3), is_last=False)
    tell(cluster, 0, offset(cluster, "g2", 4))
    tell(cluster, 1)
    found = due(cluster)
    assert found is not None
    place = (cluster.topic_id("t"), 0)
    assert found.by_group == {"g1": {place: (3, "")}, "g2": {place: (4, "")}}
    take(cluster, 0)
    assert found.taken == {0}
    assert cluster.restored().image.mirror_offsets == cluster.machine.image.mirror_offsets
    take(cluster, 1)
    assert due(cluster) is None
    assert COPY not in cluster.machine.image.topics


def test_nothing_counts_as_taken_before_all_is_told(cluster: Mirrors) -> None:
    promote(cluster)
    tell(cluster, 0, offset(cluster, "g1", 3))
    take(cluster, 0, 1)
    found = due(cluster)
    assert found is not None
    assert not found.taken


def test_former_leaders_are_passed_over(cluster: Mirrors) -> None:
    promote(cluster)
    tell(cluster, 0, leader_epoch=cluster.partition(COPY, 0).leader_epoch - 1)
    tell(cluster, 1, broker_id=99)
    found = due(cluster)
    assert found is not None
    assert not found.told
    tell(cluster, 0)
    tell(cluster, 1)
    take(cluster, 0, behind=1)
    assert not found.taken


def test_what_has_told_all_tells_no_more(cluster: Mirrors) -> None:
    promote(cluster)
    tell(cluster, 0, offset(cluster, "g1", 3))
    tell(cluster, 0, offset(cluster, "g1", 9))
    found = due(cluster)
    assert found is not None
    assert found.by_group == {"g1": {(cluster.topic_id("t"), 0): (3, "")}}


def test_nobody_deletes_the_copy_or_the_mirror_meanwhile(cluster: Mirrors) -> None:
    promote(cluster)
    gone = cluster.do(DeleteTopics(names=[COPY]), DeleteTopicsResult).topics[0]
    assert gone.error_code == ErrorCode.POLICY_VIOLATION
    assert "being taken over" in gone.error_message
    refused = cluster.delete_mirror()
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert "being taken over" in refused.error_message


def lose(cluster: Mirrors, index: int) -> None:
    """Lose all replicas of a partition of the copy."""
    for broker in cluster.partition(COPY, index).replicas:
        cluster.fence(broker)
    assert cluster.partition(COPY, index).leader < 0


def test_groups_go_on_without_offsets_that_nobody_can_tell_once_a_person_has_accepted_that(
    cluster: Mirrors,
) -> None:
    promote(cluster)
    tell(cluster, 0, offset(cluster, "g1", 3))
    tell(cluster, 1, offset(cluster, "g2", 4), is_last=False)
    lose(cluster, 1)
    refused = cluster.delete_mirror()
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert f"nobody leads {COPY}-1" in refused.error_message
    assert "resume --accept-gap" in refused.error_message
    found = due(cluster)
    assert found is not None
    assert found.told == {0}
    assert not cluster.accept(COPY).error_code
    assert (found.told, found.given_up) == ({0, 1}, {1})
    assert cluster.restored().image.mirror_offsets == cluster.machine.image.mirror_offsets
    cluster.unfence(1)
    if cluster.partition(COPY, 1).leader >= 0:  # One comes back, and is too late.
        tell(cluster, 1, offset(cluster, "g3", 5))
    assert set(found.by_group) == {"g1", "g2"}
    for broker in (2, 3):
        cluster.unfence(broker)
    take(cluster, 0, 1)
    assert due(cluster) is None
    assert COPY not in cluster.machine.image.topics
    assert not cluster.delete_mirror().error_code


def test_nothing_is_given_up_that_somebody_can_tell(cluster: Mirrors) -> None:
    promote(cluster)
    for topics in ((), (COPY,)):
        assert cluster.accept(*topics).error_code == ErrorCode.INVALID_REQUEST
    tell(cluster, 1)
    lose(cluster, 1)
    cluster.unfence(cluster.partition(COPY, 0).replicas[0])
    assert cluster.partition(COPY, 0).leader >= 0
    assert cluster.accept().error_code == ErrorCode.INVALID_REQUEST, "that partition has reported everything"
    lose(cluster, 0)
    assert cluster.accept("t").error_code == ErrorCode.INVALID_REQUEST, "that was not requested"
    found = due(cluster)
    assert found is not None
    assert not found.given_up
    assert not cluster.accept().error_code
    assert found.given_up == {0}


def test_a_promotion_without_a_cut_needs_no_copy_of_offsets(cluster: Mirrors) -> None:
    cluster.promote()
    assert due(cluster) is None
    assert COPY not in cluster.machine.image.topics


def test_groups_go_back_to_nothing_where_the_source_had_no_offsets_at_the_cut() -> None:
    """The cluster's first group has committed since, and the group's offsets were copied."""
    cluster = Mirrors()
    cluster.create_mirror(groups=GROUPS)
    cluster.follow(at_source(factor=3))
    cluster.create(topic(OWN, partitions=2, factor=3))
    cluster.announce(5, has_offsets=True)
    cluster.reach(0, 40)
    assert not cluster.promote_at_cut().error_code
    found = due(cluster)
    assert found == MirrorOffsetsDue(ZERO_UUID)
    assert cluster.accept().error_code == ErrorCode.INVALID_REQUEST, "nothing is lost"
    assert "being taken over" in cluster.delete_mirror().error_message
    take(cluster, 0)
    assert found.taken == {0}
    assert cluster.restored().image.mirror_offsets == cluster.machine.image.mirror_offsets
    take(cluster, 1)
    assert due(cluster) is None
    assert set(cluster.machine.image.topics) == {"t", OWN}
    assert not cluster.delete_mirror().error_code


def test_a_cut_from_before_offsets_were_copied_tells_nothing_of_them(cluster: Mirrors) -> None:
    """The copy came later, and has nothing below that cut. The groups' offsets there are unknown."""
    promote(cluster, has_offsets=False)
    assert due(cluster) is None
    assert COPY not in cluster.machine.image.topics
    assert not cluster.delete_mirror().error_code


def test_a_mirror_that_copies_nothing_else_can_be_deleted() -> None:
    cluster = Mirrors()
    cluster.create_mirror(groups=GROUPS)
    cluster.follow(at_source(COPY))
    assert not cluster.delete_mirror().error_code
    assert COPY not in cluster.machine.image.topics


def test_other_topics_of_brokers_are_not_copied(cluster: Mirrors) -> None:
    (result,) = cluster.follow(at_source(offsets_copy("other")))
    assert result.error_code == ErrorCode.INVALID_REQUEST


def test_nothing_is_copied_below_the_level_that_knows_of_it() -> None:
    cluster = Mirrors(level=MIRROR_WITH_CUTS)
    cluster.create_mirror(groups=GROUPS)
    (result,) = cluster.follow(at_source(COPY))
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert "level 3" in result.error_message


def test_the_level_stays_while_offsets_are_copied(cluster: Mirrors) -> None:
    for broker in (1, 2, 3):  # The knowledge of these groups' programs is unknown.
        assert not cluster.do(UnregisterBroker(broker_id=broker), PlainResult).error_code
    lower = FeatureLevel(feature=MIRROR, level=2, upgrade_type=2)
    refused = cluster.do(UpdateFeatures(updates=[lower]), UpdateFeaturesResult)
    assert "copy committed offsets" in refused.error_message
    cluster.promote()
    assert not cluster.do(UpdateFeatures(updates=[lower]), UpdateFeaturesResult).error_code


def test_a_mirror_without_groups_has_nothing_to_take_over() -> None:
    cluster = Mirrors()
    cluster.create_mirror()
    cluster.follow(at_source(factor=3))
    cluster.announce(5)
    cluster.reach(0, 40)
    assert not cluster.promote_at_cut().error_code
    assert due(cluster) is None
    assert cluster.machine.image.mirrors.by_name["m"].phase is MirrorPhase.PROMOTED
