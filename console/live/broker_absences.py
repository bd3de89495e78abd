"""The times since which brokers are fenced or down, as far as two snapshots show that they left. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from .snapshots import ClusterSnapshot


def absences(known: Mapping[int, float], before: ClusterSnapshot, after: ClusterSnapshot) -> dict[int, float]:
    """Return the seconds since 1970 at which each absent broker left the cluster.

    `known` are the times up to `before`. Brokers whose departure no snapshot showed are missing.
    """
    live = {broker.id for broker in after.cluster.brokers}
    left = {broker.id for broker in before.cluster.brokers} - live
    if not known and not left:
        return {}
    times = {**known, **dict.fromkeys(left, after.at_s)}
    return {broker: at_s for broker, at_s in times.items() if broker in after.absent}
