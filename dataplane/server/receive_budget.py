"""Who may hold memory for a request that is still arriving: a fair semaphore over bytes.

Pure: time comes in as an argument. A connection that is owed more than the smallest buffer asks for the whole
size of its request at once, so nobody holds half of what it needs while another holds the other half. Five rules:

- Requests of up to `MEDIUM_BYTES` may use the whole budget, larger ones three quarters of it. While a larger one
  waits, the others keep to their quarter. So neither kind can lock the other out.
- Within a kind those who wait are served in turn: the oldest, then the newest, then the oldest again. Under a
  flood of requests that never finish, the newest is the one whose client still waits for an answer; and the oldest
  is served all the same. Nobody is passed over because it is large.
- A request that is larger than its share is granted when no other of its kind is arriving. So those who hold too
  little, and wait for the rest, never wait for each other.
- While somebody waits, a holder whose request arrives so slowly that it would take `SLOWEST_S` is late, judged
  over `PATIENCE_S`. One that the server itself does not read is late after `PAUSED_PATIENCE_S`.
- Whoever is closed gives back what it holds, and its place in the queue.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Final, Generic, Protocol, TypeVar

MEDIUM_BYTES: Final = 2 * 1024 * 1024
PATIENCE_S: Final = 3.0
SLOWEST_S: Final = 120.0
"""By default producers give a record up after so long (delivery.timeout.ms)."""
PAUSED_PATIENCE_S: Final = 30.0
"""By default clients wait so long for an answer (request.timeout.ms)."""


class Receiver(Protocol):
    """Whoever receives requests."""

    def granted(self) -> None:
        """The grant that it waited for is its own now."""


_Owner = TypeVar("_Owner", bound=Receiver)


class Grant(Generic[_Owner]):
    """What one receiver holds of the budget, and what it waits for."""

    __slots__ = ("_mark_bytes", "_mark_s", "_paused", "arrived_bytes", "held_bytes", "owner", "wanted_bytes")

    def __init__(self, owner: _Owner) -> None:
        self.owner = owner
        #: what it waits for in place of what it holds, or 0
        self.wanted_bytes = 0
        self.begin(0)

    def begin(self, held_bytes: int) -> None:
        """It holds so much from now on."""
        self.held_bytes = held_bytes
        #: how much has been received under this grant, kept up to date by the owner
        self.arrived_bytes = 0
        self._paused = False
        # Where `arrived_bytes` stood when it was last judged, and when that was; -1 if it has not been since.
        self._mark_bytes, self._mark_s = 0, -1.0

    def pause(self) -> None:
        """The server does not read the owner for now, for reasons that are not the budget."""
        self._paused = True

    def resume(self) -> None:
        """The server reads it again."""
        if self._paused:
            self._paused, self._mark_s = False, -1.0

    def is_late(self, now_s: float) -> bool:
        """Whether too little has come since it was last judged; judged no more often than patience allows."""
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
        """Judge by what comes from now on."""
        self._mark_s, self._mark_bytes = now_s, self.arrived_bytes


class _Kind(Generic[_Owner]):
    """The grants of one kind of size."""

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
        """Whose turn it is among those who wait."""
        return next(reversed(self.waiting) if self._turn_of_newest else iter(self.waiting))

    def served(self, grant: Grant[_Owner]) -> None:
        """It was its turn."""
        del self.waiting[grant]
        self._turn_of_newest = not self._turn_of_newest

    def judged(self, now_s: float, *, short: bool) -> list[Grant[_Owner]]:
        """Who is late; nobody is before others have had to wait for a while."""
        began, self._was_short = short and not self._was_short, short
        if began:
            for grant in self.holding:
                grant.mark(now_s)
        if not short:
            return []
        return [grant for grant in self.holding if not grant.wanted_bytes and grant.is_late(now_s)]


class ReceiveBudget(Generic[_Owner]):
    """`budget_bytes` shared out among requests that are larger than the smallest buffer."""

    def __init__(self, budget_bytes: int) -> None:
        self.budget_bytes = budget_bytes
        self._medium_bytes = budget_bytes // 4
        self._large_bytes = budget_bytes - self._medium_bytes
        self._medium: _Kind[_Owner] = _Kind()
        self._large: _Kind[_Owner] = _Kind()

    @property
    def held_bytes(self) -> int:
        """What is granted."""
        return self._medium.held_bytes + self._large.held_bytes

    @property
    def waiting(self) -> int:
        """How many receivers wait."""
        return len(self._medium.waiting) + len(self._large.waiting)

    def grants(self) -> Iterator[Grant[_Owner]]:
        """All who hold or wait; one that does both comes twice."""
        for kind in (self._medium, self._large):
            yield from chain(kind.holding, kind.waiting)

    def take(self, owner: _Owner, size_bytes: int) -> Grant[_Owner] | None:
        """A grant at once, or None where the owner would have to wait."""
        kind = self._kind_of(size_bytes)
        if kind.waiting or not self._fits(kind, size_bytes):
            return None
        grant = Grant(owner)
        self._hold(grant, size_bytes)
        return grant

    def ask(self, owner: _Owner, size_bytes: int, instead_of: Grant[_Owner] | None) -> Grant[_Owner]:
        """A grant of `size_bytes` in place of what the owner holds so far.

        It is the owner's own on return if it wants nothing. Otherwise the owner keeps what it holds, and `granted`
        is called later.
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
        """The owner holds nothing any more, and waits no longer."""
        if grant.wanted_bytes:
            del self._kind_of(grant.wanted_bytes).waiting[grant]
        elif grant.held_bytes:
            self._kind_of(grant.held_bytes).active -= 1
        self._let_go(grant)
        grant.wanted_bytes = 0
        if self.waiting:
            self._serve()

    def late(self, now_s: float) -> list[_Owner]:
        """Owners to be closed, since others wait for what they hold. To be called about once a second."""
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
        """Grant in turn what there is room for; who asks right now is not called."""
        for kind in (self._large, self._medium):
            while kind.waiting:
                grant = kind.next()
                # What it holds so far counts until it is exchanged, as both are in memory then.
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
