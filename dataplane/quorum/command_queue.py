"""Commands on their way to the quorum: their sequence numbers, and the commands to send again after a leader change.

Pure. The quorum applies a command iff its sequence is the last one + 1, and answers an older one with the stored
result. So exactly-once delivery needs three things here. A command gets its sequence when it is first sent, and no
other command gets this sequence. Commands are sent in the order of their sequences. After any doubt all unresolved
commands are sent again, oldest first. A caller can abandon a command that was sent, but not withdraw it.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

Ticket = TypeVar("Ticket")


@dataclass(frozen=True, slots=True)
class Departure(Generic[Ticket]):
    """A command to send to the quorum, as its ticket, with its sequence number."""

    sequence: int
    #: the highest sequence such that all results up to it have arrived, so that the quorum may drop them
    acknowledged_sequence: int
    ticket: Ticket


class CommandQueue(Generic[Ticket]):
    """A queue of commands to the quorum in submission order. A command is any object, called its ticket.

    The quorum never has to keep more than `in_flight_max` results.

    Invariant: the sequences of `_left` rise by one; all sequences below the first are resolved, or were skipped and
    count as resolved.
    """

    def __init__(self, *, in_flight_max: int = 256, waiting_max: int = 10_000) -> None:
        self._waiting: deque[Ticket] = deque()
        self._left: dict[int, Ticket] = {}
        self._next_sequence = 1
        #: the first sequence that has not been sent on the present link
        self._resume_at = 1
        self._in_flight_max = in_flight_max
        self._waiting_max = waiting_max

    def __len__(self) -> int:
        return len(self._waiting) + len(self._left)

    @property
    def full(self) -> bool:
        """True if the queue has reached the bound on commands that were never sent."""
        return len(self._waiting) >= self._waiting_max

    @property
    def acknowledged_sequence(self) -> int:
        """The highest sequence such that all results up to it have arrived."""
        return next(iter(self._left), self._next_sequence) - 1

    def add(self, ticket: Ticket) -> None:
        """Queue a command, as its ticket. It gets its sequence number when it is sent."""
        self._waiting.append(ticket)

    def withdraw(self, ticket: Ticket) -> bool:
        """Remove a command that was never sent. Returns False if it was sent already."""
        try:
            self._waiting.remove(ticket)
        except ValueError:
            return False
        return True

    def withdraw_waiting(self) -> list[Ticket]:
        """Remove all commands that were never sent; return their tickets."""
        waiting, self._waiting = list(self._waiting), deque()
        return waiting

    @property
    def left(self) -> list[Ticket]:
        """The tickets of commands that were sent to the quorum and have no outcome yet, in the order of their
        sequences."""
        return list(self._left.values())

    def departures(self) -> Iterator[Departure[Ticket]]:
        """Yield the commands to send now on the present link to the quorum's leader, in the order of their
        sequences."""
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
        """Have all unresolved commands sent again, because the link or the leader changed or an outcome is unknown."""
        self._resume_at = self.acknowledged_sequence + 1

    def resolve(self, sequence: int) -> Ticket | None:
        """Remove and return the command of this sequence, whose outcome is known. Returns None if it was resolved
        before, which happens when two leaders answer."""
        return self._left.pop(sequence, None)

    def drain(self) -> list[Ticket]:
        """Empty the queue, and return the tickets of its commands, since the session with the quorum ends."""
        tickets = [*self._left.values(), *self._waiting]
        self._left.clear()
        self._waiting.clear()
        return tickets
