"""What groups need from the rest of the broker: the topics of the cluster, the settings of single groups, the clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from .consumer.subscriptions import TopicCatalog
from .memory import GroupMemory


def _no_settings(_group_id: str) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, slots=True)
class GroupDependencies:
    """`group_settings` returns the settings of one group (`consumer.session.timeout.ms`, ...).

    Records are stamped by `wall_ms`, the clock by which logs judge timestamps. It may jump, so nothing expires by it
    alone. Without it, records have the time of the shard's own clock. `memory` is that of all shards.
    """

    topics: TopicCatalog = field(default_factory=TopicCatalog)
    group_settings: Callable[[str], Mapping[str, str]] = _no_settings
    wall_ms: Callable[[], int] | None = None
    memory: GroupMemory = field(default_factory=GroupMemory)

    def settings_of(self, group_id: str) -> Callable[[], Mapping[str, str]]:
        """The settings of one group, looked up whenever they are asked for."""
        return partial(self.group_settings, group_id)
