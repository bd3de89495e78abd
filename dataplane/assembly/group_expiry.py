"""The periodic expiry of groups and of their committed offsets."""

from __future__ import annotations

from collections.abc import Iterator

from ..groups.coordinator import GroupCoordinator
from ..runtime.periodic import PeriodicWork


class GroupExpiry:
    """The expiry of the groups that this broker coordinates."""

    def __init__(self, groups: GroupCoordinator, check_interval_ms: int) -> None:
        self._groups = groups
        self._check_interval_s = check_interval_ms / 1000

    def periodic_work(self) -> Iterator[PeriodicWork]:
        """Yield the expiry (offsets.retention.check.interval.ms)."""
        yield PeriodicWork("expiry of groups", self._check_interval_s, self._expire)

    async def _expire(self) -> None:
        self._groups.expire()
