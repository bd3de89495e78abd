"""Metrics of the groups that this broker coordinates. Only a group's coordinator reports the group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...protocol.exposition import Family, gauge
from .share.group import ShareGroup, ShareGroupState

if TYPE_CHECKING:
    from ..replication.replicas.replicas import Replicas
    from .coordinator import GroupCoordinator
    from .shard import Shard

_GROUP_PARTITION = ("consumergroup", "topic", "partition")

GROUP_MEMBERS = gauge("kafka_consumergroup_members", "Members of a group.", "consumergroup")
GROUP_OFFSET = gauge("kafka_consumergroup_current_offset", "Committed offset.", *_GROUP_PARTITION)
GROUP_LAG = gauge(
    "kafka_consumergroup_lag",
    "High watermark minus committed offset, where this broker has a replica of the partition.",
    *_GROUP_PARTITION,
)
GROUP_LAG_SUM = gauge(
    "kafka_consumergroup_lag_sum", "Sum of kafka_consumergroup_lag.", "consumergroup", "topic"
)
SHARE_GROUPS = gauge(
    "kafka_server_group_coordinator_metrics_share_group_count",
    "Share groups, by state: empty or stable.",
    "state",
)
LOADING_SHARDS = gauge("ottla_broker_group_shards_loading", "Shards of groups that this broker is loading.")


class GroupMetrics:
    """Metrics of all groups that this broker coordinates. A lag is measured up to the high watermark of this broker's
    replica; without a replica there is none."""

    def __init__(self, groups: GroupCoordinator, replicas: Replicas) -> None:
        self._groups = groups
        self._replicas = replicas

    def metric_families(self) -> Iterator[Family]:
        """Yield the metrics. Rows are lazy: they show the state at the time when they are read."""
        shards = list(self._groups.shards())
        members = (
            ((group_id,), len(group.members))
            for shard in shards
            for group_id, group in list(shard.groups.items())
        )
        yield Family(GROUP_MEMBERS, members)
        yield Family(GROUP_OFFSET, _committed(shards))
        sums: Counter[tuple[str, str]] = Counter()
        yield Family(GROUP_LAG, self._lags(shards, sums))
        yield Family(GROUP_LAG_SUM, list(sums.items()))
        yield Family(SHARE_GROUPS, _share_groups(shards))
        yield Family(LOADING_SHARDS, [((), self._groups.loading)])

    def _lags(
        self, shards: list[Shard], sums: Counter[tuple[str, str]]
    ) -> Iterator[tuple[tuple[str, str, int], int]]:
        """Yield ((group, topic, partition), lag in records). Each lag is also added to `sums` by group and topic."""
        for labels, offset in _committed(shards):
            group_id, topic, index = labels
            end = self._end_of(topic, index)
            if end is not None:
                lag = max(0, end - offset)
                sums[group_id, topic] += lag
                yield labels, lag

    def _end_of(self, topic: str, index: int) -> int | None:
        partition = self._replicas.find(topic, index)
        return None if partition is None else partition.high_watermark


def _share_groups(shards: list[Shard]) -> list[tuple[tuple[str], int]]:
    """Return the number of share groups in each state. A dead group is in no shard."""
    states = Counter(
        group.state for shard in shards for group in shard.groups.values() if isinstance(group, ShareGroup)
    )
    return [
        ((state.value.lower(),), states[state])
        for state in ShareGroupState
        if state is not ShareGroupState.DEAD
    ]


def _committed(shards: list[Shard]) -> Iterator[tuple[tuple[str, str, int], int]]:
    """Yield ((group, topic, partition), committed offset). Groups may come and go meanwhile."""
    for shard in shards:
        for group_id in list(shard.offsets.groups()):
            for (topic, index), entry in shard.offsets.of_group(group_id).items():
                yield (group_id, topic, index), entry.offset
