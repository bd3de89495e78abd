"""A budget of memory for requests that are still arriving: a fair semaphore over bytes.

Pure: time is passed as an argument. A connection that needs more than the smallest buffer asks for the whole size of
its request at once, so no connection holds half of its need while another holds the other half. There are five rules:

- Requests of up to `MEDIUM_BYTES` may use the whole budget, larger ones three quarters of it. While a larger request
  waits, the medium ones are limited to their quarter. So neither kind can exclude the other.
- Within a kind the waiting connections are served in turn: the oldest, then the newest, then the oldest again. Under a
  flood of requests that never finish, the newest is the one whose client still waits for an answer; and the oldest is
  served all the same. No connection is passed over because its request is large.
- A request that is larger than its share is granted when no other of its kind is arriving. So connections that hold too
  little, and wait for the rest, never wait for each other.
- While any connection waits, a holder is late if its request arrives so slowly that it would take `SLOWEST_S`, judged
  over `PATIENCE_S`. A holder that the server itself does not read is late after `PAUSED_PATIENCE_S`.
- A closed connection gives back what it holds, and its place in the queue.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Final, Generic, Protocol, TypeVar

MEDIUM_BYTES: Final = 2 * 1024 * 1024
PATIENCE_S: Final = 3.0
SLOWEST_S: Final = 120.0
"""The default time in seconds after which producers give a record up (delivery.timeout.ms)."""
PAUSED_PATIENCE_S: Final = 30.0
"""The default time in seconds that clients wait for an answer (request.timeout.ms)."""


class Receiver(Protocol):
    """A connection that receives requests and waits for memory."""

    def granted(self) -> None:
        """Note that the budget now grants the memory that the receiver waited for."""


_Owner = TypeVar("_Owner", bound=Receiver)


class Grant(Generic[_Owner]):
    """One connection's part of the budget: the bytes that it holds, and the bytes that it waits for."""

    __slots__ = ("_mark_bytes", "_mark_s", "_paused", "arrived_bytes", "held_bytes", "owner", "wanted_bytes")

    def __init__(self, owner: _Owner) -> None:
        self.owner = owner
        #: bytes that it waits for instead of those that it holds, or 0
        self.wanted_bytes = 0
        self.begin(0)

    def begin(self, held_bytes: int) -> None:
        """Hold `held_bytes` from now on, and start to measure the arrival of their request."""
        self.held_bytes = held_bytes
        #: number of bytes received under this grant, updated by the owner
        self.arrived_bytes = 0
        self._paused = False
        # The value of `arrived_bytes` at the last judgement, and the time of that; -1 if there was none.
        self._mark_bytes, self._mark_s = 0, -1.0

    def pause(self) -> None:
        """Note that the server has paused reading the owner's socket, for reasons other than the budget."""
        self._paused = True

    def resume(self) -> None:
        """Note that the server reads the owner's socket again."""
        if self._paused:
            self._paused, self._mark_s = False, -1.0

    def is_late(self, now_s: float) -> bool:
        """Return whether too few bytes of the request have arrived since the last judgement. An owner is judged at most
        once in `PATIENCE_S`, or `PAUSED_PATIENCE_S` while paused.
        """
        if self._mark_s < 0:
            self.mark(now_s)
            return False
        waited_s = now_s - self._mark_s
        if waited_s < (PAUSED_PATIENCE_S if self._paused else PATIENCE_S):
            return False
        needed = 1 if self._paused else self.held_bytes * waited_s / SLOWEST_S
        late = self.arrived_bytes - self._mark_bytes < needed
        self.mark(now_s)
        return late

    def mark(self, now_s: float) -> None:
        """Judge the owner by the bytes that arrive after `now_s`."""
        self._mark_s, self._mark_bytes = now_s, self.arrived_bytes


class _Kind(Generic[_Owner]):
    """The grants for requests of one kind of size: medium or large."""

    def __init__(self) -> None:
        # Invariant: held_bytes is the sum over `holding`; `active` counts those in it that wait for nothing.
        self.held_bytes = 0
        self.active = 0
        self.holding: dict[Grant[_Owner], None] = {}
        #: from the oldest to the newest
        self.waiting: dict[Grant[_Owner], None] = {}
        self._was_short = False
        self._turn_of_newest = False

    def next(self) -> Grant[_Owner]:
        """Return the waiting grant to be served next: the oldest and the newest take turns."""
        return next(reversed(self.waiting) if self._turn_of_newest else iter(self.waiting))

    def served(self, grant: Grant[_Owner]) -> None:
        """Note that this waiting grant was served, so that the other end of the queue has the next turn."""
        del self.waiting[grant]
        self._turn_of_newest = not self._turn_of_newest

    def judged(self, now_s: float, *, short: bool) -> list[Grant[_Owner]]:
        """Return the grants whose request arrives too slowly. `short` is true while any receiver waits. There are no
        late grants before receivers have waited for a while.
        """
        began, self._was_short = short and not self._was_short, short
        if began:
            for grant in self.holding:
                grant.mark(now_s)
        if not short:
            return []
        return [grant for grant in self.holding if not grant.wanted_bytes and grant.is_late(now_s)]


class ReceiveBudget(Generic[_Owner]):
    """A budget of `budget_bytes` of memory for incoming requests that are larger than the smallest buffer."""

    def __init__(self, budget_bytes: int) -> None:
        self.budget_bytes = budget_bytes
        self._medium_bytes = budget_bytes // 4
        self._large_bytes = budget_bytes - self._medium_bytes
        self._medium: _Kind[_Owner] = _Kind()
        self._large: _Kind[_Owner] = _Kind()

    @property
    def held_bytes(self) -> int:
        """The number of bytes that connections hold of the budget."""
        return self._medium.held_bytes + self._large.held_bytes

    @property
    def waiting(self) -> int:
        """The number of connections that wait for memory."""
        return len(self._medium.waiting) + len(self._large.waiting)

    def grants(self) -> Iterator[Grant[_Owner]]:
        """Yield all grants that hold or wait; a grant that does both is yielded twice."""
        for kind in (self._medium, self._large):
            yield from chain(kind.holding, kind.waiting)

    def take(self, owner: _Owner, size_bytes: int) -> Grant[_Owner] | None:
        """Return a grant of `size_bytes` that is valid at once; None if the owner would have to wait."""
        kind = self._kind_of(size_bytes)
        if kind.waiting or not self._fits(kind, size_bytes):
            return None
        grant = Grant(owner)
        self._hold(grant, size_bytes)
        return grant

    def ask(self, owner: _Owner, size_bytes: int, instead_of: Grant[_Owner] | None) -> Grant[_Owner]:
        """Return a grant of `size_bytes` that replaces the owner's present one.

        It is valid on return if its `wanted_bytes` is 0. Otherwise the owner keeps what it holds, and `granted` is
        called later.
        """
        grant = instead_of or Grant(owner)
        if grant.held_bytes:
            self._kind_of(grant.held_bytes).active -= 1
        kind = self._kind_of(size_bytes)
        if not kind.waiting and self._fits(kind, size_bytes):
            self._let_go(grant)
            self._hold(grant, size_bytes)
        else:
            grant.wanted_bytes = size_bytes
            kind.waiting[grant] = None
        if self.waiting:
            self._serve(asking=grant)
        return grant

    def give_back(self, grant: Grant[_Owner]) -> None:
        """Release all bytes of a grant, and its place in the queue."""
        if grant.wanted_bytes:
            del self._kind_of(grant.wanted_bytes).waiting[grant]
        elif grant.held_bytes:
            self._kind_of(grant.held_bytes).active -= 1
        self._let_go(grant)
        grant.wanted_bytes = 0
        if self.waiting:
            self._serve()

    def late(self, now_s: float) -> list[_Owner]:
        """Return the owners whose connections should be closed: their requests arrive too slowly while others wait for
        the memory. To be called about once a second.
        """
        medium, large = self._medium, self._large
        borrowed = medium.held_bytes > self._medium_bytes
        hindered = (bool(medium.waiting or (large.waiting and borrowed)), bool(large.waiting))
        return [
            grant.owner
            for kind, short in zip((medium, large), hindered, strict=True)
            for grant in kind.judged(now_s, short=short)
        ]

    def _kind_of(self, size_bytes: int) -> _Kind[_Owner]:
        return self._medium if size_bytes <= MEDIUM_BYTES else self._large

    def _fits(self, kind: _Kind[_Owner], size_bytes: int) -> bool:
        medium, large = self._medium, self._large
        room = self.held_bytes + size_bytes <= self.budget_bytes
        if kind is medium:
            within = medium.held_bytes + size_bytes <= self._medium_bytes
            return within or not medium.active or (room and not large.waiting)
        if not large.active and (medium.held_bytes <= self._medium_bytes or not medium.active):
            return True
        return room and large.held_bytes + size_bytes <= self._large_bytes

    def _serve(self, asking: Grant[_Owner] | None = None) -> None:
        """Grant memory in turn while there is room. The grant `asking`, whose owner is just asking, is not notified."""
        for kind in (self._large, self._medium):
            while kind.waiting:
                grant = kind.next()
                # The present memory counts until the exchange, as both are in use then.
                if not self._fits(kind, grant.wanted_bytes):
                    break
                kind.served(grant)
                self._let_go(grant)
                self._hold(grant, grant.wanted_bytes)
                grant.wanted_bytes = 0
                if grant is not asking:
                    grant.owner.granted()

    def _hold(self, grant: Grant[_Owner], size_bytes: int) -> None:
        kind = self._kind_of(size_bytes)
        kind.holding[grant] = None
        kind.held_bytes += size_bytes
        kind.active += 1
        grant.begin(size_bytes)

    def _let_go(self, grant: Grant[_Owner]) -> None:
        if grant.held_bytes:
            kind = self._kind_of(grant.held_bytes)
            del kind.holding[grant]
            kind.held_bytes -= grant.held_bytes
            grant.held_bytes = 0
