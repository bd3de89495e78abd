"""What groups see of what is around them: the cluster's topics, the settings of single groups, the time of day."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from .consumer.subscriptions import TopicCatalog

GROUP_RESOURCE = 32
"""The resource type of group settings in the cluster image."""


def _no_settings(_group_id: str) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, slots=True)
class GroupDependencies:
    """`group_settings` tells the settings that were given to one group (`consumer.session.timeout.ms`, ...).

    `wall_ms` is the clock that logs judge timestamps by: records are stamped by it. It may jump, so nothing expires
    by it. Without one, records have the time of the shard's own clock.
    """

    topics: TopicCatalog = field(default_factory=TopicCatalog)
    group_settings: Callable[[str], Mapping[str, str]] = _no_settings
    wall_ms: Callable[[], int] | None = None

    def settings_of(self, group_id: str) -> Callable[[], Mapping[str, str]]:
        """The settings of one group, looked up whenever they are asked for."""
        return partial(self.group_settings, group_id)
