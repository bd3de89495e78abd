"""Bounds on peers that have not proved who they are: so many in all, and so many of one address.

Pure. Whoever is one too many takes the place of an older one, since a peer of good faith proves itself at once: the
oldest is the one that waits for nothing good. An address that has most of them loses before the others, so a flood
from one place does not keep out what comes from another.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

_Peer = TypeVar("_Peer")


class Strangers(Generic[_Peer]):
    """Who they are, in the order in which they came."""

    def __init__(self, most: int, of_address_most: int) -> None:
        self._most = most
        self._of_address_most = of_address_most
        # Invariant: each peer stands in both, and no address is there without a peer.
        self._addresses: dict[_Peer, str] = {}
        self._of_address: dict[str, dict[_Peer, None]] = {}

    def __len__(self) -> int:
        return len(self._addresses)

    def __contains__(self, peer: _Peer) -> bool:
        return peer in self._addresses

    def __iter__(self) -> Iterator[_Peer]:
        return iter(self._addresses)

    def admit(self, peer: _Peer, address: str) -> _Peer | None:
        """Count one more. Returns who has to go for it, and counts no longer."""
        self._addresses[peer] = address
        of_address = self._of_address.setdefault(address, {})
        of_address[peer] = None
        if len(of_address) <= self._of_address_most:
            if len(self._addresses) <= self._most:
                return None
            of_address = max(self._of_address.values(), key=len)
        oldest = next(iter(of_address))
        self.forget(oldest)
        return oldest

    def forget(self, peer: _Peer) -> bool:
        """It has proved itself, or is gone; whether it was a stranger."""
        address = self._addresses.pop(peer, None)
        if address is None:
            return False
        of_address = self._of_address[address]
        del of_address[peer]
        if not of_address:
            del self._of_address[address]
        return True
