"""The times since which brokers are fenced or down, as the cluster reports them, or two snapshots show. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from .snapshots import ClusterSnapshot


def absences(
    known: Mapping[int, float], before: ClusterSnapshot | None, after: ClusterSnapshot
) -> dict[int, float]:
    """Return the seconds since 1970 at which each absent broker left the cluster.

    The cluster reports the time of a fence. Of other brokers, `known` has the times up to `before`; those whose
    departure neither the cluster nor a snapshot showed are missing.
    """
    live = {broker.id for broker in after.cluster.brokers}
    left = set() if before is None else {broker.id for broker in before.cluster.brokers} - live
    times = {**known, **dict.fromkeys(left, after.at_s), **fence_times(after)}
    return {broker: at_s for broker, at_s in times.items() if broker in after.absent}


def fence_times(snapshot: ClusterSnapshot) -> dict[int, float]:
    """Return the seconds since 1970 at which brokers were fenced, as far as the cluster reports them."""
    return {
        broker.address.id: broker.since_ms / 1000
        for broker in snapshot.cluster.fenced_brokers
        if broker.since_ms is not None
    }
