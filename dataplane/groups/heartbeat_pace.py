"""The heartbeat interval of a group's members, which is short while the group changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SETTLING_INTERVAL_MS: Final = 250
"""Shortest heartbeat interval of members of a group that changes."""
SETTLING_MEMBER_MS: Final = 1
"""Heartbeat interval of such a group for each member, so that its members send no more than 1,000 heartbeats a second
together."""


@dataclass(slots=True)
class HeartbeatPace:
    """The pace of one group's heartbeats. Members learn by heartbeats what they give up and what they get.

    The group has settled after one regular interval without a new epoch: each member has sent a heartbeat since.
    """

    _epoch: int = 0
    _settled_ms: int = 0

    def interval_ms(self, epoch: int, members: int, regular_ms: int, now_ms: int, *, waits: bool) -> int:
        """Return the time until a member's next heartbeat.

        `epoch` and `members` are the group's, and `regular_ms` is the interval in a settled group. `waits`: the member
        waits for a change even in a settled group.
        """
        if epoch != self._epoch:
            self._epoch, self._settled_ms = epoch, now_ms + regular_ms
        if now_ms >= self._settled_ms and not waits:
            return regular_ms
        return min(regular_ms, max(SETTLING_INTERVAL_MS, members * SETTLING_MEMBER_MS))
