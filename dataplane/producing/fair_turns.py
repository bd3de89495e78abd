"""Work that waits for threads, in fair turns: the client that has had the least time comes next.

Clients are principals at addresses, and each of their connections takes turns with the others. So who opens many
connections gets no more than who has one. A client that comes anew begins with the time of the client whose turn it is,
and cannot save time up. Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

_Item = TypeVar("_Item")
_IDLE_KEPT: Final = 256
"""So many clients are remembered; of those without work, half as many that have had most time."""


class _Client(Generic[_Item]):
    __slots__ = ("connections", "spent_s", "waiting")

    def __init__(self, spent_s: float) -> None:
        self.spent_s = spent_s
        # The connection whose turn is next comes first.
        self.connections: dict[Hashable, deque[_Item]] = {}
        self.waiting = 0

    def add(self, connection: Hashable, item: _Item) -> None:
        self.connections.setdefault(connection, deque()).append(item)
        self.waiting += 1

    def take(self) -> _Item:
        connection, items = next(iter(self.connections.items()))
        del self.connections[connection]
        item = items.popleft()
        if items:
            self.connections[connection] = items
        self.waiting -= 1
        return item


class FairTurns(Generic[_Item]):
    """Items by client and connection. Invariant: a client has had no less time than `_now_s`, or nothing waits."""

    def __init__(self) -> None:
        self._clients: dict[Hashable, _Client[_Item]] = {}
        # The time that the client had had whose turn was last.
        self._now_s = 0.0
        self.waiting = 0

    def add(self, client: Hashable, connection: Hashable, item: _Item) -> None:
        """Have an item wait for its turn. Those of one connection keep their order."""
        known = self._clients.get(client)
        if known is None:
            if len(self._clients) >= _IDLE_KEPT:
                self._forget_idle()
            known = self._clients[client] = _Client(self._now_s)
        elif not known.waiting:
            known.spent_s = max(known.spent_s, self._now_s)
        known.add(connection, item)
        self.waiting += 1

    def take(self) -> _Item | None:
        """Return the item whose turn it is, None if nothing waits."""
        waiting = [client for client in self._clients.values() if client.waiting]
        if not waiting:
            return None
        client = min(waiting, key=lambda each: each.spent_s)
        self._now_s = max(self._now_s, client.spent_s)
        self.waiting -= 1
        return client.take()

    def spend(self, client: Hashable, seconds: float) -> None:
        """Count the time that an item of a client has taken."""
        known = self._clients.get(client)
        if known is not None:
            known.spent_s += seconds

    def _forget_idle(self) -> None:
        idle = [name for name, client in self._clients.items() if not client.waiting]
        idle.sort(key=lambda name: self._clients[name].spent_s)
        for name in idle[: len(idle) - _IDLE_KEPT // 2]:
            del self._clients[name]
