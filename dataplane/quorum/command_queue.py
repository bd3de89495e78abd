"""Commands on their way to the quorum: sequence numbers, and what to send again after a leader change.

Pure. The quorum applies a command iff its sequence is the last one + 1 and answers an older one with the
result it kept, so exactly-once needs three things here: a sequence is given when a command first leaves and
never to another command; commands leave in the order of their sequences; and after any doubt everything
unresolved leaves again, from the oldest on. A command that has left can be abandoned by its caller but not
withdrawn.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

Ticket = TypeVar("Ticket")


@dataclass(frozen=True, slots=True)
class Departure(Generic[Ticket]):
    """One command to send."""

    sequence: int
    #: the results of all sequences up to here have arrived and need not be kept
    acknowledged_sequence: int
    ticket: Ticket


class CommandQueue(Generic[Ticket]):
    """Tickets (whatever stands for a command) in submission order.

    The quorum never has to keep more than `in_flight_max` results.

    Invariant: the sequences of `_left` rise by one; all below the first are resolved or skipped over as
    resolved.
    """

    def __init__(self, *, in_flight_max: int = 256, waiting_max: int = 10_000) -> None:
        self._waiting: deque[Ticket] = deque()
        self._left: dict[int, Ticket] = {}
        self._next_sequence = 1
        #: sequences from here on have not been sent on the present link
        self._resume_at = 1
        self._in_flight_max = in_flight_max
        self._waiting_max = waiting_max

    def __len__(self) -> int:
        return len(self._waiting) + len(self._left)

    @property
    def full(self) -> bool:
        """Whether `add` would go beyond the bound on waiting commands."""
        return len(self._waiting) >= self._waiting_max

    @property
    def acknowledged_sequence(self) -> int:
        """The results up to here have all arrived."""
        return next(iter(self._left), self._next_sequence) - 1

    def add(self, ticket: Ticket) -> None:
        """Queues a command; it gets its sequence when it leaves."""
        self._waiting.append(ticket)

    def withdraw(self, ticket: Ticket) -> bool:
        """Takes back a command that has never left; False if it is too late for that."""
        try:
            self._waiting.remove(ticket)
        except ValueError:
            return False
        return True

    def withdraw_waiting(self) -> list[Ticket]:
        """Takes back all that have never left."""
        waiting, self._waiting = list(self._waiting), deque()
        return waiting

    @property
    def left(self) -> list[Ticket]:
        """Those that have left and have no outcome."""
        return list(self._left.values())

    def departures(self) -> Iterator[Departure[Ticket]]:
        """Those that are to be sent now on the present link, in order."""
        for sequence in range(max(self._resume_at, self.acknowledged_sequence + 1), self._next_sequence):
            if sequence in self._left:
                yield Departure(sequence, self.acknowledged_sequence, self._left[sequence])
        while self._waiting and self._next_sequence - self.acknowledged_sequence <= self._in_flight_max:
            ticket = self._waiting.popleft()
            sequence = self._next_sequence
            self._next_sequence += 1
            self._left[sequence] = ticket
            yield Departure(sequence, self.acknowledged_sequence, ticket)
        self._resume_at = self._next_sequence

    def send_again(self) -> None:
        """The link or the leader changed, or an outcome is unknown: everything unresolved is to leave
        again.
        """
        self._resume_at = self.acknowledged_sequence + 1

    def resolve(self, sequence: int) -> Ticket | None:
        """The outcome of this sequence is known; None if it was already (an answer from two leaders)."""
        return self._left.pop(sequence, None)

    def drain(self) -> list[Ticket]:
        """Empties the queue, for a session that ends."""
        tickets = [*self._left.values(), *self._waiting]
        self._left.clear()
        self._waiting.clear()
        return tickets
