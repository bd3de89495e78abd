"""Selection of the replica from which a consumer should read (KIP-392): the selectors of `replica.selector.class`.

Pure: the leader passes its knowledge of its in-sync followers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple


class ReplicaView(NamedTuple):
    """A replica from which a consumer could read, as its leader knows it: its rack, its log end, and its lag."""

    broker_id: int
    rack: str | None
    log_end_offset: int
    behind_ms: int
    """Milliseconds since the replica was last caught up; 0 for the leader."""


Selector = Callable[[str, ReplicaView, Sequence[ReplicaView]], int | None]
"""A function (the consumer's rack, the leader, its in-sync followers that have the offset) -> the id of the broker to
read from instead of the leader, or None for the leader."""


def closest_replica(rack: str, leader: ReplicaView, followers: Sequence[ReplicaView]) -> int | None:
    """Return a follower in the consumer's rack; None if the leader is in the rack, too, or no follower is.

    Of several followers it is the one with the longest log, then the one last caught up, then the one with the highest
    id.
    """
    if not rack or leader.rack == rack:
        return None
    near = [replica for replica in followers if replica.rack == rack]
    if not near:
        return None
    return max(
        near, key=lambda replica: (replica.log_end_offset, -replica.behind_ms, replica.broker_id)
    ).broker_id


SELECTORS: Mapping[str, Selector | None] = {
    "org.apache.kafka.common.replica.RackAwareReplicaSelector": closest_replica,
    "org.apache.kafka.common.replica.LeaderSelector": None,
}
"""Selectors by the values of `replica.selector.class`. None: consumers read from the leader."""


def selector_named(name: str) -> Selector | None:
    """Return the selector of that name; an empty name selects the leader. Raises ValueError."""
    name = name.strip()
    if not name:
        return None
    if name not in SELECTORS:
        raise ValueError(f"{name!r} is not one of {', '.join(SELECTORS)}")
    return SELECTORS[name]
