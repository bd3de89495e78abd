"""The description of a cluster: for JSON, and in the order in which people look for what is broken. Pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from ....client.admin.partition_states import (
    OFFLINE,
    UNDER_REPLICATED,
    TopicStates,
    own_first,
    topic_states,
    worst_first,
)
from ...arguments.selection import duration_text, second_text
from ...terminal.shades import Shade, Shaded
from ...terminal.text import counted
from .survey import HEALTHY, Survey

FENCED: Final = "fenced"
IMBALANCE_PERCENT: Final = 10
"""Percentage of partitions that may be led by another broker than their preferred replica without a hint, as by
default for `leader.imbalance.per.broker.percentage`."""
NAMED_MAX: Final = 3
"""The most brokers that the headline names for one state."""


def report_of(found: Survey) -> dict[str, Any]:
    """Return the description of a cluster for JSON; offline and fenced brokers go first."""
    partitions = [partition for topic in found.topics for partition in topic.partitions.values()]
    leads = Counter(partition.leader for partition in partitions)
    held = Counter(broker for partition in partitions for broker in partition.replicas)
    return {
        "cluster_id": found.cluster.cluster_id,
        "healthy": found.health.healthy,
        "topics": len(found.topics),
        "partitions": len(partitions),
        "brokers": [
            broker | {"leads": leads[broker["id"]], "replicas": held[broker["id"]]}
            for broker in _brokers(found)
        ],
        "quorum": _voters(found),
        "under_replicated": [
            {
                "topic": topic.name,
                "partition": partition.index,
                "leader": partition.leader,
                "replicas": partition.replicas,
                "isr": partition.isr,
                "state": word,
            }
            for topic in sorted(found.topics, key=own_first)
            for partition in topic.partitions.values()
            if (word := found.state_of(topic.name, partition)) in (OFFLINE, UNDER_REPLICATED)
        ],
    }


def _brokers(found: Survey) -> list[dict[str, Any]]:
    """Return the brokers, offline and fenced ones first.

    An offline broker holds replicas and is not registered, so that the cluster knows no address of it.
    """
    nowhere = {"fenced_since_ms": None, "address": None, "rack": None, "host": None}
    offline = [{"id": broker_id, "state": OFFLINE, **nowhere} for broker_id in found.health.brokers_down]
    registered = [
        *((broker.address, FENCED, broker.since_ms) for broker in found.cluster.fenced_brokers),
        *((address, HEALTHY, None) for address in found.cluster.brokers),
    ]
    listed = offline + [
        {
            "id": address.id,
            "state": word,
            "fenced_since_ms": since_ms,
            "address": f"{address.host}:{address.port}",
            "rack": address.rack,
            "host": found.cluster.hosts.get(address.id),
        }
        for address, word, since_ms in registered
    ]
    return sorted(listed, key=lambda broker: (broker["state"] == HEALTHY, broker["id"]))


def _voters(found: Survey) -> list[dict[str, Any]]:
    quorum = found.quorum
    if quorum is None:
        return []
    return [
        {
            "id": node_id,
            "address": "" if address is None else f"{address[0]}:{address[1]}",
            "state": quorum.state_of(node_id),
            "term": quorum.term,
        }
        for node_id, address in sorted(quorum.voters.items())
    ]


def needy_topics(found: Survey) -> list[TopicStates]:
    """Return the topics with partitions that are not healthy, in the order of `worst_first`."""
    states = (topic_states(topic, found.adding) for topic in found.topics)
    return worst_first(topic for topic in states if topic.reassigning or not topic.is_healthy)


def imbalance_text(found: Survey) -> str:
    """Return the hint that many partitions are led by another broker than their preferred replica; empty if few are.

    A partition counts if its preferred replica, the first in its list, is in sync and could lead.
    """
    partitions = [partition for topic in found.topics for partition in topic.partitions.values()]
    count = sum(
        0 <= partition.leader != partition.replicas[0] in partition.isr
        for partition in partitions
        if partition.replicas
    )
    if count * 100 <= IMBALANCE_PERCENT * len(partitions):
        return ""
    return (
        f"{count} of {counted(len(partitions), 'partition')} {'is' if count == 1 else 'are'} not led by the preferred "
        "replica: 'ottla cluster elect' lets it lead"
    )


def headline(found: Survey, now_s: float) -> Shaded:
    """Return the line about the health of a cluster: `healthy`, or `NOT healthy` and the reasons."""
    health = found.health
    if health.healthy:
        return Shaded("healthy", Shade.GOOD)
    offline = set(health.offline)
    reasons = [health.quorum_problem] if health.quorum_problem else []
    if health.quorum_leader is None and not health.quorum_problem:
        reasons.append("the quorum has no leader")
    reasons += _named("quorum node", [*health.quorum_silent, *health.quorum_abstaining], "not taking part")
    reasons += _named("broker", health.brokers_down, OFFLINE)
    reasons += [
        f"broker {broker} {FENCED}{since_text(health.fenced_since_ms.get(broker), now_s)}"
        for broker in health.brokers_fenced[:NAMED_MAX]
    ]
    if (more := len(health.brokers_fenced) - NAMED_MAX) > 0:
        reasons.append(f"{counted(more, 'more broker')} {FENCED}")
    for names, word in (
        (health.offline, OFFLINE),
        (health.below_min_isr, "below min.insync.replicas"),
        ([name for name in health.under_replicated if name not in offline], UNDER_REPLICATED),
    ):
        if names:
            reasons.append(f"{counted(len(names), 'partition')} {word}")
    return Shaded(f"NOT healthy: {'; '.join(reasons)}", Shade.BAD)


def _named(kind: str, names: Sequence[object], word: str) -> list[str]:
    """Return the part of the headline about brokers or quorum nodes in one state; empty if there are none."""
    if not names:
        return []
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    plural = kind if len(names) == 1 else f"{kind}s"
    return [f"{plural} {', '.join(map(str, names[:NAMED_MAX]))}{more} {word}"]


def since_text(since_ms: int | None, now_s: float) -> str:
    """Return how long a broker has been fenced: ` since 2026-01-31T12:00:05Z, 4m12s ago`; empty if it is unknown."""
    if since_ms is None:
        return ""
    return f" since {second_text(since_ms)}, {duration_text(now_s - since_ms / 1000)} ago"
