"""Bounds on peers that have not proved who they are: so many in all, and so many of one address.

Pure. Whoever is one too many takes the place of an older one, since a peer of good faith proves itself at once: the
oldest is the one that waits for nothing good. An address that has most of them loses before the others, so a flood
from one place does not keep out what comes from another.

Half of the places are kept for peers that have gone a step of their handshake or login. Peers that only have connected
do not push those out, and make room for each other. Beyond that half whoever has not gone a step for longest makes
room, so peers that go some steps and no further keep nobody out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

_Peer = TypeVar("_Peer")


@dataclass(slots=True)
class _Address(Generic[_Peer]):
    """Peers of one address: those that only have connected, as they came, and the others, by their last step."""

    waiting: dict[_Peer, None] = field(default_factory=dict)
    progressing: dict[_Peer, None] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.waiting) + len(self.progressing)

    def oldest(self, is_waiting: bool) -> _Peer:
        """Return who has gone no step for longest, of one kind."""
        return next(iter(self.waiting if is_waiting else self.progressing))


class UnauthenticatedPeers(Generic[_Peer]):
    """Who they are, in the order in which they came."""

    def __init__(self, most: int, of_address_most: int) -> None:
        self._most = most
        self._of_address_most = of_address_most
        # Invariant: each peer stands in both, and no address is there without a peer.
        self._addresses: dict[_Peer, str] = {}
        self._of_address: dict[str, _Address[_Peer]] = {}
        # Of all addresses.
        self._progressing = 0

    def __len__(self) -> int:
        return len(self._addresses)

    def __contains__(self, peer: _Peer) -> bool:
        return peer in self._addresses

    def __iter__(self) -> Iterator[_Peer]:
        return iter(self._addresses)

    def admit(self, peer: _Peer, address: str) -> _Peer | None:
        """Count one more. Returns who has to go for it, and counts no longer."""
        self._addresses[peer] = address
        crowd = self._of_address.setdefault(address, _Address())
        crowd.waiting[peer] = None
        if len(crowd) > self._of_address_most:
            gives_way = crowd.oldest(len(crowd.waiting) > _places_to_wait(self._of_address_most))
        elif len(self._addresses) > self._most:
            gives_way = self._of_crowd(peer)
        else:
            return None
        self.forget(gives_way)
        return gives_way

    def _of_crowd(self, newcomer: _Peer) -> _Peer:
        """Return who has to go where there are too many in all: of the address that has most of those."""
        addresses = self._of_address.values()
        if len(self._addresses) - self._progressing > _places_to_wait(self._most):
            crowd = max(addresses, key=lambda one: len(one.waiting) - (newcomer in one.waiting))
            return crowd.oldest(True)
        return max(addresses, key=lambda one: len(one.progressing)).oldest(False)

    def progressed(self, peer: _Peer) -> None:
        """Note that a peer has gone a step. It means nothing for whoever is no stranger."""
        address = self._addresses.get(peer)
        if address is None:
            return
        of_address = self._of_address[address]
        if peer in of_address.waiting:
            del of_address.waiting[peer]
            self._progressing += 1
        else:
            del of_address.progressing[peer]
        of_address.progressing[peer] = None

    def forget(self, peer: _Peer) -> bool:
        """It has proved itself, or is gone; whether it was a stranger."""
        address = self._addresses.pop(peer, None)
        if address is None:
            return False
        of_address = self._of_address[address]
        if peer in of_address.waiting:
            del of_address.waiting[peer]
        else:
            del of_address.progressing[peer]
            self._progressing -= 1
        if not of_address:
            del self._of_address[address]
        return True


def _places_to_wait(most: int) -> int:
    """Return how many of so many peers may be such that only have connected, where others need the places."""
    return max(1, most // 2)
