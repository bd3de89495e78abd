"""Connections with delays, silence and sudden ends; each direction is ordered, as in TCP."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

SILENCE_SECONDS = 2.0


class Endpoint(Protocol):
    """A node, from the network's view."""

    alive: bool

    def peer_connected(self, peer: int) -> None: ...
    def peer_disconnected(self, peer: int) -> None: ...
    def deliver(self, peer: int, payload: bytes) -> None: ...


@dataclass(slots=True)
class Direction:
    """One direction of a connection."""

    last_delivery: float = 0.0
    held: deque[bytes] = field(default_factory=deque)
    """Messages sent into a cut: they arrive after healing, unless the connection ends first."""
    cut: bool = False
    cut_since: float = 0.0
    delay: tuple[float, float] = (0.0001, 0.002)


class VirtualNetwork:
    """All connections between all nodes."""

    def __init__(
        self,
        random: Random,
        now: Callable[[], float],
        at: Callable[[float, Callable[[], None]], None],
        endpoints: dict[int, Endpoint],
    ) -> None:
        self._random = random
        self._now = now
        self._at = at
        self._endpoints = endpoints
        self._directions = {
            (endpoint, other): Direction()
            for endpoint in endpoints
            for other in endpoints
            if endpoint != other
        }
        self._connection: dict[tuple[int, int], int] = {}
        self._numbers = 0
        for endpoint in endpoints:
            for other in endpoints:
                if endpoint < other:
                    self._keep_connecting(endpoint, other)

    def send(self, sender: int, receiver: int, payload: bytes) -> None:
        number = self._connection.get(_pair(sender, receiver))
        if number is None:
            return
        direction = self._directions[sender, receiver]
        if direction.cut:
            direction.held.append(payload)
            return
        self._schedule(sender, receiver, direction, payload, number)

    def cut(self, sender: int, receiver: int) -> None:
        direction = self._directions[sender, receiver]
        if not direction.cut:
            direction.cut, direction.cut_since = True, self._now()
            self._at(self._now() + SILENCE_SECONDS, lambda: self._notice_silence(sender, receiver))

    def heal(self, sender: int, receiver: int) -> None:
        direction = self._directions[sender, receiver]
        direction.cut = False
        number = self._connection.get(_pair(sender, receiver))
        held, direction.held = direction.held, deque()
        if number is not None:
            for payload in held:
                self._schedule(sender, receiver, direction, payload, number)

    def heal_all(self) -> None:
        for here, there in self._directions:
            self._directions[here, there].delay = (0.0001, 0.002)
            self.heal(here, there)

    def slow_down(self, sender: int, receiver: int, delay: tuple[float, float]) -> None:
        self._directions[sender, receiver].delay = delay

    def reset(self, first: int, second: int) -> None:
        """End the connection: both ends notice, and messages in transit are lost."""
        if self._connection.pop(_pair(first, second), None) is None:
            return
        for sender, receiver in ((first, second), (second, first)):
            self._directions[sender, receiver].held.clear()
            self._endpoints[receiver].peer_disconnected(sender)

    def node_died(self, node: int, *, noticed: bool) -> None:
        """Handle a node's death. `noticed`: the peers get a reset at once; otherwise they wait in silence."""
        for other in self._endpoints:
            pair = _pair(node, other)
            number = self._connection.get(pair) if other != node else None
            if number is None:
                continue
            for direction in ((node, other), (other, node)):
                self._directions[direction].held.clear()
            delay = self._random.uniform(0.0005, 0.005) if noticed else SILENCE_SECONDS
            self._at(self._now() + delay, lambda pair=pair, number=number: self._end(pair, number))

    def _end(self, pair: tuple[int, int], number: int) -> None:
        if self._connection.get(pair) == number:
            self.reset(*pair)

    def _notice_silence(self, sender: int, receiver: int) -> None:
        direction = self._directions[sender, receiver]
        if direction.cut and self._now() - direction.cut_since >= SILENCE_SECONDS - 1e-9:
            self.reset(sender, receiver)

    def _schedule(
        self, sender: int, receiver: int, direction: Direction, payload: bytes, number: int
    ) -> None:
        arrival = max(direction.last_delivery, self._now() + self._random.uniform(*direction.delay))
        direction.last_delivery = arrival

        def arrive() -> None:
            if self._connection.get(_pair(sender, receiver)) == number:
                self._endpoints[receiver].deliver(sender, payload)

        self._at(arrival, arrive)

    def _keep_connecting(self, first: int, second: int) -> None:
        self._at(self._now() + self._random.uniform(0.01, 0.2), lambda: self._keep_connecting(first, second))
        if not (self._endpoints[first].alive and self._endpoints[second].alive):
            return
        if self._directions[first, second].cut or self._directions[second, first].cut:
            return
        pair = _pair(first, second)
        if pair in self._connection:
            return
        self._numbers += 1
        self._connection[pair] = self._numbers
        self._endpoints[first].peer_connected(second)
        self._endpoints[second].peer_connected(first)

    def restarted(self, node: int) -> None:
        """Handle a new incarnation: its peers drop the half-open connection to the old one."""
        for other in self._endpoints:
            if other != node:
                self.reset(node, other)


def _pair(first: int, second: int) -> tuple[int, int]:
    return (first, second) if first < second else (second, first)
