"""The distribution of memory for requests: no client waits for ever or is locked out, and none keeps memory that others
wait for.
"""

from __future__ import annotations

import random

import pytest

from ottla.dataplane.server.receive_budget import (
    MEDIUM_BYTES,
    PATIENCE_S,
    PAUSED_PATIENCE_S,
    SLOWEST_S,
    Grant,
    ReceiveBudget,
)

MB = 1024 * 1024


class Receiver:
    """A receiver that counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def granted(self) -> None:
        self.calls += 1


def ask(budget: ReceiveBudget[Receiver], size: int) -> Grant[Receiver]:
    return budget.ask(Receiver(), size, None)


def test_what_fits_is_granted_at_once_and_without_a_call() -> None:
    budget: ReceiveBudget[Receiver] = ReceiveBudget(256 * MB)
    grant = ask(budget, 50 * MB)
    assert (grant.held_bytes, grant.wanted_bytes, grant.owner.calls) == (50 * MB, 0, 0)
    assert budget.held_bytes == 50 * MB
    budget.give_back(grant)
    assert budget.held_bytes == 0


def test_twenty_large_requests_at_once_are_all_served_in_turn() -> None:
    budget: ReceiveBudget[Receiver] = ReceiveBudget(256 * MB)
    grants = [ask(budget, 50 * MB) for _ in range(20)]
    assert sum(grant.wanted_bytes == 0 for grant in grants) == 3, "as many as three quarters hold"
    served = 0
    while held := [grant for grant in grants if grant.held_bytes]:
        assert budget.held_bytes <= 192 * MB
        budget.give_back(held[0])
        served += 1
    assert served == 20
    assert budget.waiting == 0


def test_large_requests_leave_room_for_those_of_usual_size() -> None:
    budget: ReceiveBudget[Receiver] = ReceiveBudget(256 * MB)
    for _ in range(300):
        ask(budget, 90 * MB)
    assert all(ask(budget, MB).held_bytes for _ in range(64)), "a quarter of the budget is theirs"


def test_requests_of_usual_size_leave_room_for_a_large_one() -> None:
    budget: ReceiveBudget[Receiver] = ReceiveBudget(256 * MB)
    held = [ask(budget, MB) for _ in range(256)]
    large = ask(budget, 100 * MB)
    late = ask(budget, MB)
    assert not large.held_bytes
    assert not late.held_bytes, "while a large one waits, the others keep to their quarter"
    for grant in held[:156]:
        budget.give_back(grant)
    assert large.held_bytes
    assert large.owner.calls == 1


def test_a_small_one_does_not_pass_the_large_one_whose_turn_it_is() -> None:
    budget: ReceiveBudget[Receiver] = ReceiveBudget(256 * MB)
    first = ask(budget, 100 * MB)
    second = ask(budget, 100 * MB)
    third = ask(budget, 3 * MB)
    assert (second.held_bytes, third.held_bytes) == (0, 0)
    assert budget.take(Receiver(), 3 * MB) is None
    budget.give_back(first)
    assert (second.held_bytes, third.held_bytes) == (100 * MB, 3 * MB)


def test_every_second_grant_goes_to_the_newcomer() -> None:
    budget: ReceiveBudget[Receiver] = ReceiveBudget(128 * MB)
    holder = ask(budget, 90 * MB)
    waiting = [ask(budget, 90 * MB) for _ in range(6)]
    order = []
    while budget.waiting:
        budget.give_back(holder)
        (holder,) = (grant for grant in waiting if grant.held_bytes)
        order.append(waiting.index(holder))
    assert order == [0, 5, 1, 4, 2, 3]


def test_a_request_beyond_the_whole_budget_is_served_alone() -> None:
    budget: ReceiveBudget[Receiver] = ReceiveBudget(2 * MB)
    first, second = ask(budget, 90 * MB), ask(budget, 90 * MB)
    assert (first.held_bytes, second.held_bytes) == (90 * MB, 0)
    budget.give_back(first)
    assert second.held_bytes == 90 * MB


def test_those_who_hold_and_wait_do_not_wait_for_each_other() -> None:
    """Readers with a too small guess keep their part until they get the rest."""
    budget: ReceiveBudget[Receiver] = ReceiveBudget(8 * MB)
    owners = [Receiver() for _ in range(8)]
    held = [budget.take(owner, MB) for owner in owners]
    asked = [budget.ask(owner, 2 * MB, grant) for owner, grant in zip(owners, held, strict=True)]
    served = 0
    while whole := [grant for grant in asked if grant.held_bytes and not grant.wanted_bytes]:
        assert budget.held_bytes <= 10 * MB
        budget.give_back(whole[0])
        served += 1
    assert served == 8


def test_a_stalled_holder_is_late_once_others_have_waited_for_a_while() -> None:
    budget: ReceiveBudget[Receiver] = ReceiveBudget(256 * MB)
    stalled = ask(budget, 90 * MB)
    fast = ask(budget, 90 * MB)
    assert not any(budget.late(second) for second in range(100)), "no receiver waits"
    ask(budget, 90 * MB)
    found = []
    for second in range(100, 110):
        fast.arrived_bytes += 4 * MB
        found += [(second, owner) for owner in budget.late(second)]
    assert found[0] == (100 + PATIENCE_S, stalled.owner)
    assert fast.owner not in [owner for _, owner in found]


def test_a_slow_request_that_would_be_whole_in_time_goes_on() -> None:
    budget: ReceiveBudget[Receiver] = ReceiveBudget(128 * MB)
    size = 60 * MB
    slow, crawling = ask(budget, size), ask(budget, 30 * MB)
    ask(budget, size)
    found: set[Receiver] = set()
    for second in range(int(SLOWEST_S)):
        found.update(budget.late(second))
        slow.arrived_bytes += int(size / SLOWEST_S) + 1
        crawling.arrived_bytes += 100
    assert found == {crawling.owner}


def test_large_requests_that_wait_do_not_make_others_late() -> None:
    budget: ReceiveBudget[Receiver] = ReceiveBudget(256 * MB)
    hogs = [ask(budget, 90 * MB) for _ in range(10)]
    usual = ask(budget, MB)
    found = [owner for second in range(20) for owner in budget.late(second)]
    assert usual.owner not in found
    assert set(found) == {grant.owner for grant in hogs if grant.held_bytes}


def test_a_request_that_the_server_does_not_read_has_longer() -> None:
    budget: ReceiveBudget[Receiver] = ReceiveBudget(128 * MB)
    paused = ask(budget, 90 * MB)
    ask(budget, 90 * MB)
    assert budget.late(0) == []
    paused.pause()
    assert not any(budget.late(second) for second in range(1, 20))
    paused.resume()
    assert not any(budget.late(second) for second in range(20, 23)), "it is judged by what comes from now on"
    paused.pause()
    assert any(budget.late(second) for second in range(23, 24 + int(PAUSED_PATIENCE_S)))


@pytest.mark.parametrize("seed", range(40))
def test_everyone_is_served_in_the_end_whatever_comes_and_goes(seed: int) -> None:
    rng = random.Random(seed)
    budget: ReceiveBudget[Receiver] = ReceiveBudget(rng.choice([4 * MB, 32 * MB, 256 * MB]))
    live: list[Grant[Receiver]] = []
    for _ in range(400):
        whole = [grant for grant in live if grant.held_bytes and not grant.wanted_bytes]
        draw = rng.random()
        size = rng.choice([20_000, 900_000, MEDIUM_BYTES, 3 * MB, 50 * MB, 100 * MB])
        if draw < 0.5:
            live.append(ask(budget, size))
        elif draw < 0.7 and (taken := budget.take(Receiver(), min(size, MEDIUM_BYTES))):
            live.append(taken)
        elif draw < 0.8 and whole:
            grant = rng.choice(whole)
            budget.ask(grant.owner, grant.held_bytes + size, grant)
        elif live:
            gone = live.pop(rng.randrange(len(live)))
            budget.give_back(gone)
        assert budget.held_bytes == sum(grant.held_bytes for grant in live), f"seed {seed}"
    for _ in range(len(live)):
        whole = [grant for grant in live if grant.held_bytes and not grant.wanted_bytes]
        assert whole, f"seed {seed}: {budget.waiting} wait and no receiver holds a whole grant"
        live.remove(whole[0])
        budget.give_back(whole[0])
    assert (budget.held_bytes, budget.waiting) == (0, 0), f"seed {seed}"
