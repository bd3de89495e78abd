"""The parts of the broker that groups use: the topics of the cluster, the settings of single groups, the clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from .consumer.subscriptions import TopicCatalog
from .memory import GroupMemory
from .persister import NoPersister, SharePersister


def _never() -> bool:
    return False


def _no_settings(_group_id: str) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, slots=True)
class GroupDependencies:
    """The parts of the broker that groups use.

    `topics` is a catalogue of the cluster's topics. `group_settings` returns the settings of one group
    (`consumer.session.timeout.ms`, ...). `wall_ms` is the clock that gives records their timestamps, and by which logs
    judge them. It may jump, so nothing expires by this clock alone. Without it, records get the time of the shard's own
    clock. `memory` is the memory budget of all shards. `persister` writes the states of share-partitions.
    `has_earlier_programs` returns whether brokers of earlier programs may read the groups' records.
    """

    topics: TopicCatalog = field(default_factory=TopicCatalog)
    group_settings: Callable[[str], Mapping[str, str]] = _no_settings
    wall_ms: Callable[[], int] | None = None
    memory: GroupMemory = field(default_factory=GroupMemory)
    persister: SharePersister = field(default_factory=NoPersister)
    has_earlier_programs: Callable[[], bool] = _never

    def settings_of(self, group_id: str) -> Callable[[], Mapping[str, str]]:
        """Return a function that looks up the current settings of one group."""
        return partial(self.group_settings, group_id)
