"""Exactly once, in order: the command queue with a quorum that loses links, leaders and answers."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from ottla.dataplane.quorum.command_queue import CommandQueue, Departure


class Quorum:
    """The state machine's rule: apply if sequence = last + 1, answer the kept result below."""

    def __init__(self) -> None:
        self.applied: list[int] = []
        self.kept: dict[int, int] = {}

    def apply(self, departure: Departure[int]) -> bool:
        """Apply a command, and return whether there is a result."""
        last = len(self.applied)
        if departure.sequence == last + 1:
            self.applied.append(departure.ticket)
            self.kept[departure.sequence] = departure.ticket
        for sequence in [s for s in self.kept if s <= departure.acknowledged_sequence]:
            del self.kept[sequence]
        return departure.sequence <= len(self.applied)


@given(st.integers(0, 2**32), st.integers(1, 40), st.integers(1, 6))
def test_every_command_is_applied_once_and_in_order(seed: int, commands: int, in_flight: int) -> None:
    chance = Random(seed)
    quorum, queue = Quorum(), CommandQueue[int](in_flight_max=in_flight)
    on_the_way: list[Departure[int]] = []
    submitted, resolved = 0, []
    while len(resolved) < commands:
        if submitted < commands and chance.random() < 0.5:
            queue.add(submitted)
            submitted += 1
        on_the_way += queue.departures()
        assert len(quorum.kept) <= in_flight
        if chance.random() < 0.2:  # the link breaks: some arrived, none is answered
            for departure in on_the_way[: chance.randrange(len(on_the_way) + 1)]:
                quorum.apply(departure)
            on_the_way.clear()
            queue.send_again()
        elif on_the_way:
            departure = on_the_way.pop(0)
            known = quorum.apply(departure)
            if chance.random() < 0.2 or not known:  # a new leader that does not know, or a gap
                queue.send_again()
            else:
                ticket = queue.resolve(departure.sequence)
                if ticket is not None:
                    assert ticket == departure.ticket
                    resolved.append(ticket)
    assert quorum.applied == list(range(commands)) == sorted(resolved)


def test_a_command_that_never_left_leaves_no_gap() -> None:
    queue = CommandQueue[str](in_flight_max=1)
    for ticket in ("a", "b", "c"):
        queue.add(ticket)
    assert [d.sequence for d in queue.departures()] == [1]
    assert not queue.withdraw("a")
    assert queue.withdraw("b")
    assert queue.resolve(1) == "a"
    assert queue.resolve(1) is None
    assert [(d.sequence, d.acknowledged_sequence, d.ticket) for d in queue.departures()] == [(2, 1, "c")]


def test_the_bound_on_waiting_commands_shows() -> None:
    queue = CommandQueue[int](in_flight_max=1, waiting_max=2)
    queue.add(0)
    list(queue.departures())
    queue.add(1)
    assert not queue.full
    queue.add(2)
    assert queue.full
    assert queue.drain() == [0, 1, 2]
    assert len(queue) == 0
