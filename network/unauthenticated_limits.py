"""Limits on unauthenticated peers, in total and for each address.

Pure. A peer beyond a limit evicts an older peer, since honest peers authenticate at once and the oldest is the most
suspicious. The address with the most such peers loses first, so a flood from one address does not keep other addresses
out.

Half of the allowed number is kept for peers that have made progress in their handshake or login. Peers that have only
connected do not evict these, but each other. Beyond that half the peer that has made no progress for longest is
evicted, so peers that stop halfway keep no peer out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

_Peer = TypeVar("_Peer")


@dataclass(slots=True)
class _Address(Generic[_Peer]):
    """Unauthenticated peers from one IP address: `waiting` have only connected, in order of arrival; `progressing` have
    taken a step of their handshake or login, in order of their last step."""

    waiting: dict[_Peer, None] = field(default_factory=dict)
    progressing: dict[_Peer, None] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.waiting) + len(self.progressing)

    def oldest(self, is_waiting: bool) -> _Peer:
        """Return the waiting or progressing peer that has made no progress for longest."""
        return next(iter(self.waiting if is_waiting else self.progressing))


class UnauthenticatedPeers(Generic[_Peer]):
    """The connected peers that have not authenticated yet, in order of arrival, limited to `most` in total and
    `of_address_most` for each IP address."""

    def __init__(self, most: int, of_address_most: int) -> None:
        self._most = most
        self._of_address_most = of_address_most
        # Invariant: each peer is in both, and each address has a peer.
        self._addresses: dict[_Peer, str] = {}
        self._of_address: dict[str, _Address[_Peer]] = {}
        # Number of progressing peers of all addresses.
        self._progressing = 0

    def __len__(self) -> int:
        return len(self._addresses)

    def __contains__(self, peer: _Peer) -> bool:
        return peer in self._addresses

    def __iter__(self) -> Iterator[_Peer]:
        return iter(self._addresses)

    def admit(self, peer: _Peer, address: str) -> _Peer | None:
        """Add a newly connected peer. Return the peer that the caller must disconnect, which is already removed here;
        None if no limit is exceeded."""
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
        """Return the peer to evict when the total is exceeded. It is from the IP address with most peers: with most
        waiting peers while more than half of all are waiting, else with most progressing peers."""
        addresses = self._of_address.values()
        if len(self._addresses) - self._progressing > _places_to_wait(self._most):
            crowd = max(addresses, key=lambda address: len(address.waiting) - (newcomer in address.waiting))
            return crowd.oldest(True)
        return max(addresses, key=lambda address: len(address.progressing)).oldest(False)

    def progressed(self, peer: _Peer) -> None:
        """Note that a peer has taken a step of its handshake or login. Peers that are not in this set are ignored."""
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
        """Remove a peer that has authenticated or disconnected. Return whether it was still in this set."""
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
    """Return how many of the `most` allowed peers may be peers that have only connected, once the limit is reached:
    half, and at least one."""
    return max(1, most // 2)
