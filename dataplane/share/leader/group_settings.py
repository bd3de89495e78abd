"""The settings of share groups that hold at the leader of a partition, within the bounds of the broker's settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from ....protocol.settings.config_share import BY_KEY, LATEST, ORDERING
from ..limits import ShareLimits

READ_COMMITTED: Final = "read_committed"
_CACHED_MAX: Final = 10_000
"""Maximum number of groups whose settings are cached."""

_LOCK_DURATION: Final = (
    "share.record.lock.duration.ms",
    "group.share.record.lock.duration.ms",
    "group.share.min.record.lock.duration.ms",
    "group.share.max.record.lock.duration.ms",
)
_DELIVERY_LIMIT: Final = (
    "share.delivery.count.limit",
    "group.share.delivery.count.limit",
    "group.share.min.delivery.count.limit",
    "group.share.max.delivery.count.limit",
)
_RECORD_LOCKS: Final = (
    "share.partition.max.record.locks",
    "group.share.partition.max.record.locks",
    "group.share.min.partition.max.record.locks",
    "group.share.max.partition.max.record.locks",
)


class GroupSettings(NamedTuple):
    """The settings of one share group."""

    limits: ShareLimits
    is_read_committed: bool
    may_renew: bool
    offset_reset: str
    """Value of share.auto.offset.reset."""
    letter_topic: str
    """Topic for dead letters; empty: records are archived without letters."""
    copies_letters: bool
    """True if a letter has the key, the value and the headers of its record."""


class ShareGroupSettings:
    """The settings in force of all share groups."""

    def __init__(
        self,
        number: Callable[[str], int],
        of_group: Callable[[str], Mapping[str, str]],
        has_letters: Callable[[], bool],
    ) -> None:
        """Create the settings. `number` returns a broker's setting, and `of_group` the own settings of a group.
        `has_letters` returns whether all brokers know dead letters."""
        self._number = number
        self._of_group = of_group
        self._has_letters = has_letters
        self._cached: dict[str, tuple[Mapping[str, str], bool, GroupSettings]] = {}

    def get(self, group_id: str) -> GroupSettings:
        """Return the settings of a group. A value of the group outside the broker's bounds becomes the bound."""
        own = self._of_group(group_id)
        has_letters = self._has_letters()
        cached = self._cached.get(group_id)
        if cached is not None and cached[:2] == (own, has_letters):
            return cached[2]
        letter_topic = own.get("errors.deadletterqueue.topic.name", "") if has_letters else ""
        settings = GroupSettings(
            ShareLimits(
                lock_duration_ms=self._bounded(own, *_LOCK_DURATION),
                delivery_limit=self._bounded(own, *_DELIVERY_LIMIT),
                record_locks=self._bounded(own, *_RECORD_LOCKS),
                has_dead_letters=bool(letter_topic),
                is_ordered=own.get(ORDERING) == BY_KEY,
            ),
            is_read_committed=own.get("share.isolation.level") == READ_COMMITTED,
            may_renew=own.get("share.renew.acknowledge.enable", "true").lower() == "true",
            offset_reset=own.get("share.auto.offset.reset", LATEST),
            letter_topic=letter_topic,
            copies_letters=own.get("errors.deadletterqueue.copy.record.enable", "false").lower() == "true",
        )
        if len(self._cached) >= _CACHED_MAX:
            self._cached.clear()
        self._cached[group_id] = dict(own), has_letters, settings
        return settings

    def _bounded(self, own: Mapping[str, str], key: str, default: str, least: str, most: str) -> int:
        text = own.get(key)
        number = self._number(default) if text is None else int(text)
        return min(max(number, self._number(least)), self._number(most))
