"""A comparison of all brokers' time of day by the quorum's leader, with each other and with its own.

Pure. A heartbeat carries the broker's time of day. It takes a while to arrive, so a clock is at least as far ahead as
the fastest heartbeat shows. The reference is the median of all clocks, the leader's included, so a leader with a wrong
clock does not blame all brokers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

SKEW_MS_MAX = 10_000
"""Largest tolerated difference. Delays of heartbeats stay far below. Larger differences disturb everything that depends
on the time of day: retention, timestamps that brokers judge, tokens, certificates."""
_RIGHT_AGAIN_MS = SKEW_MS_MAX // 2
_HEARTBEATS = 5
"""Number of a broker's latest heartbeats that count; the fastest of them is used."""


@dataclass(frozen=True, slots=True)
class ClockRemark:
    """A broker's or leader's clock that has begun to differ from the others, or agrees again, to be logged. `skew_ms`
    is positive for a clock that is ahead."""

    node_id: int
    skew_ms: int
    is_wrong: bool
    """False if the clock agrees with the others again."""


class ClockWatch:
    """A record of how far the clocks of brokers and of this leader differ, and of the clocks that are wrong by more
    than `SKEW_MS_MAX`."""

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self._ahead_ms: dict[int, deque[int]] = {}
        self._wrong: set[int] = set()
        self._doubted: set[int] = set()
        # Clocks that differed at the end of the last round of heartbeats.
        self._heard: set[int] = set()
        # Brokers whose heartbeats arrived in this round.

    def begin(self) -> None:
        """Forget all heartbeats when this node begins or ends to lead."""
        self._ahead_ms.clear()
        self._wrong.clear()
        self._doubted.clear()
        self._heard.clear()

    def heard(self, broker_id: int, wall_ms: int, own_wall_ms: int) -> list[ClockRemark]:
        """Note the time of day `wall_ms` in a broker's heartbeat, which arrived when this node's clock showed
        `own_wall_ms`. Return the clocks that have become wrong or right.

        Changes are detected after a full round of all brokers, since all clocks differ if this node's clock jumps.
        """
        differences = self._ahead_ms.setdefault(broker_id, deque(maxlen=_HEARTBEATS))
        differences.append(wall_ms - own_wall_ms)
        self._heard.add(broker_id)
        if not self._heard >= self._ahead_ms.keys():
            return []
        self._heard.clear()
        return list(self._changes())

    def keep(self, broker_ids: Iterable[int]) -> None:
        """Forget the clocks of all brokers except these."""
        for gone in self._ahead_ms.keys() - set(broker_ids):
            del self._ahead_ms[gone]
            self._wrong.discard(gone)
            self._doubted.discard(gone)

    def skews_ms(self) -> dict[int, int]:
        """Return by node id how many milliseconds each clock is ahead of the median of all clocks. This node is
        included; brokers with fewer than five heartbeats are not."""
        ahead = {
            broker_id: max(differences)
            for broker_id, differences in self._ahead_ms.items()
            if len(differences) == _HEARTBEATS
        }
        ahead[self._node_id] = 0
        middle = _middle(list(ahead.values()))
        return {node_id: ahead_ms - middle for node_id, ahead_ms in ahead.items()}

    def _changes(self) -> Iterator[ClockRemark]:
        """Yield the clocks that have become wrong or right, at the end of a round of heartbeats. A clock is wrong after
        two consecutive rounds with too large a difference."""
        before, self._doubted = self._doubted, set()
        for node_id, skew_ms in self.skews_ms().items():
            if node_id in self._wrong:
                if abs(skew_ms) <= _RIGHT_AGAIN_MS:
                    self._wrong.discard(node_id)
                    yield ClockRemark(node_id, skew_ms, is_wrong=False)
            elif abs(skew_ms) > SKEW_MS_MAX:
                self._doubted.add(node_id)
                if node_id in before:
                    self._wrong.add(node_id)
                    yield ClockRemark(node_id, skew_ms, is_wrong=True)


def _middle(ahead_ms: list[int]) -> int:
    """Return the median of the differences from this node's clock; if there are two middle values, the one nearer to
    0."""
    ordered = sorted(ahead_ms)
    return min(ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2], key=abs)
