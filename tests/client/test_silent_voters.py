"""The quorum nodes that its leader does not hear."""

from __future__ import annotations

from ottla.client.admin.cluster import silent_voters
from ottla.protocol.messages.quorum_description import ReplicaState


def told(**heard: int) -> list[ReplicaState]:
    return [ReplicaState(replica_id=int(name[1:]), last_fetch_timestamp=when) for name, when in heard.items()]


def test_whoever_was_not_heard_for_three_seconds_is_silent() -> None:
    assert silent_voters(told(n1=50_000, n2=49_900, n3=47_000)) == ()
    assert silent_voters(told(n1=46_999, n2=50_000, n3=49_900)) == (1,)


def test_whoever_was_never_heard_is_silent() -> None:
    assert silent_voters(told(n1=50_000, n2=-1)) == (2,)


def test_nobody_is_silent_where_the_leader_or_an_older_version_tells_no_times() -> None:
    assert silent_voters(told(n1=-1, n2=-1)) == ()
    assert silent_voters([]) == ()
