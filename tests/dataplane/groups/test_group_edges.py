"""Edges of the classic group machine: late syncs, static members that come back, commits from outside."""

from __future__ import annotations

from dataclasses import replace

from ottla.dataplane.groups.classic.membership import JoinReply, StoreGroup
from ottla.dataplane.groups.classic.states import GroupState
from ottla.protocol.errors import ErrorCode

from .test_group import join_request, joins, new_group, stable_group, syncs


def test_a_follower_that_syncs_after_the_leader_is_stored_stays() -> None:
    group, (leader, follower) = stable_group(2)
    effects = group.join(join_request(leader), "l", 0) + group.join(join_request(follower), "f", 0)
    assert set(joins(effects)) == {"l", "f"}
    group.sync(leader, None, group.generation, {leader: b"1", follower: b"2"}, "l", 0)
    group.stored(group.generation, ErrorCode.NONE, 0)
    answered = syncs(group.sync(follower, None, group.generation, {}, "f", 100))
    assert answered["f"].assignment == b"2"
    for now_ms in range(5_000, 60_000, 5_000):
        for member_id in (leader, follower):
            assert group.heartbeat(member_id, None, group.generation, now_ms) is ErrorCode.NONE
        assert group.tick(now_ms) == []
    assert group.state is GroupState.STABLE


def test_static_members_that_are_all_away_keep_their_generation() -> None:
    group = new_group()
    effects = group.join(join_request(instance_id="i"), "j", 0)
    member_id = joins(effects)["j"].member_id
    group.sync(member_id, "i", 1, {member_id: b"x"}, "s", 0)
    group.stored(1, ErrorCode.NONE, 0)
    waiting = group.join(replace(join_request(), protocols=(("range", b""),)), "other", 0)
    assert not joins(waiting)
    (other,) = set(group.members) - {member_id}
    group.leave(other, None, 0)
    for now_ms in range(5_000, 65_000, 5_000):
        assert group.heartbeat(member_id, "i", 1, now_ms) is ErrorCode.REBALANCE_IN_PROGRESS
        group.tick(now_ms)


def test_nobody_is_told_of_a_static_members_new_id_before_it_is_stored() -> None:
    group = new_group()
    effects = group.join(join_request(instance_id="i"), "j", 0)
    member_id = joins(effects)["j"].member_id
    group.sync(member_id, "i", 1, {member_id: b"x"}, "s", 0)
    group.stored(1, ErrorCode.NONE, 0)
    effects = group.join(join_request(instance_id="i"), "back", 0)
    assert not joins(effects)
    (store,) = [e for e in effects if isinstance(e, StoreGroup)]
    assert store.then is not None
    reply = store.then(ErrorCode.NONE)
    assert isinstance(reply, JoinReply)
    assert (reply.ticket, reply.error) == ("back", ErrorCode.NONE)
    refused = store.then(ErrorCode.NOT_COORDINATOR)
    assert (refused.ticket, refused.error) == ("back", ErrorCode.NOT_COORDINATOR)


def test_a_static_member_that_comes_back_before_it_has_synced_leaves_no_former_self_to_wait_for() -> None:
    group = new_group()
    leader = joins(group.join(join_request(), "l", 0))["l"].member_id
    group.join(join_request(instance_id="i"), "i", 0)
    group.join(join_request(leader), "l", 0)
    group.sync(leader, None, 2, {}, "s", 0)
    group.stored(2, ErrorCode.NONE, 0)
    assert group.state is GroupState.STABLE
    assert group.waits.unsynced == {group.static_members["i"]}
    group.join(join_request(instance_id="i"), "back", 5)
    group.check()
    assert group.waits.sync_deadline_ms is None


def test_an_empty_group_takes_commits_from_outside_whatever_they_call_themselves() -> None:
    group = new_group()
    assert group.check_commit("tool", None, -1, 0) is ErrorCode.NONE
    group.join(join_request(), "j", 0)
    assert group.check_commit("tool", None, -1, 0) is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_instance_id_is_not_taken_over_by_way_of_a_pending_member_id() -> None:
    group = new_group()
    static = joins(group.join(join_request(instance_id="i"), "s", 0))["s"].member_id
    pending = joins(group.join(join_request(require_known_id=True), "p", 0))["p"].member_id
    effects = group.join(join_request(pending, "i"), "q", 0)
    assert joins(effects)["q"].error is ErrorCode.FENCED_INSTANCE_ID
    assert group.static_members == {"i": static}


def test_assignors_in_common_are_counted_right_whoever_comes_changes_and_goes() -> None:
    group = new_group()
    ids = []
    for number, offered in enumerate((("a", "b"), ("b", "c", "b"), ("b",))):
        group.join(join_request(protocols=offered), number, 0)
        ids.append(list(group.members)[-1])
    refused = joins(group.join(join_request(protocols=("a", "c")), "x", 0))["x"]
    assert refused.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    group.leave(ids[2], None, 0)
    group.leave(ids[0], None, 0)
    group.join(join_request(ids[1], protocols=("c",)), "changed", 0)
    refused = joins(group.join(join_request(protocols=("b",)), "y", 0)).get("y")
    assert refused is not None
    assert refused.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    group.join(join_request(protocols=("c", "a")), "z", 0)
    assert len(group.members) == 2
