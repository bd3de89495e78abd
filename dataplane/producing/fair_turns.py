"""Work that waits for threads, in fair turns: the client that has used the least time is served next.

Clients are principals at addresses, and each of their connections takes turns with the others. So a client with many
connections gets no more time than a client with one. A new client begins with the used time of the client that is
served, so it cannot save up time. Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

_Item = TypeVar("_Item")
_IDLE_KEPT: Final = 256
"""Number of clients that are remembered. If there are more, half this number of clients without work remain, those with
the most time."""


class _Client(Generic[_Item]):
    __slots__ = ("connections", "spent_s", "waiting")

    def __init__(self, spent_s: float) -> None:
        self.spent_s = spent_s
        # Connections in the order of their turns.
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
    """Items that wait for threads, by client and connection.

    Invariant: a client has used no less time than `_now_s`, or has no waiting items.
    """

    def __init__(self) -> None:
        self._clients: dict[Hashable, _Client[_Item]] = {}
        # Time used by the client that was served last.
        self._now_s = 0.0
        self.waiting = 0

    def add(self, client: Hashable, connection: Hashable, item: _Item) -> None:
        """Add an item that waits for its turn. Items of one connection keep their order."""
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
        """Return the item whose turn it is; None if no item waits."""
        waiting = [client for client in self._clients.values() if client.waiting]
        if not waiting:
            return None
        client = min(waiting, key=lambda candidate: candidate.spent_s)
        self._now_s = max(self._now_s, client.spent_s)
        self.waiting -= 1
        return client.take()

    def spend(self, client: Hashable, seconds: float) -> None:
        """Add the time that a thread has spent on an item to the time that its client has used."""
        known = self._clients.get(client)
        if known is not None:
            known.spent_s += seconds

    def _forget_idle(self) -> None:
        idle = [name for name, client in self._clients.items() if not client.waiting]
        idle.sort(key=lambda name: self._clients[name].spent_s)
        for name in idle[: len(idle) - _IDLE_KEPT // 2]:
            del self._clients[name]
