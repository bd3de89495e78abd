"""Turns at the threads: by the time that clients have had, whatever their number of connections."""

from __future__ import annotations

import random

from ottla.dataplane.producing.fair_turns import FairTurns


def test_a_client_that_has_had_less_time_comes_first() -> None:
    turns: FairTurns[str] = FairTurns()
    for number in range(40):
        # Forty connections have no more turns than one.
        turns.add("mallory", number, f"bomb {number}")
    taken = turns.take()
    turns.spend("mallory", 1.0)
    turns.add("ann", "c", "first")
    turns.add("ann", "c", "second")
    order = [taken]
    for _ in range(3):
        order.append(turns.take())
        turns.spend("ann" if order[-1] in ("first", "second") else "mallory", 0.01)
    assert order == ["bomb 0", "first", "second", "bomb 1"]


def test_connections_of_one_client_take_turns_and_each_keeps_its_order() -> None:
    turns: FairTurns[tuple[int, int]] = FairTurns()
    for number in range(3):
        for connection in range(3):
            turns.add("ann", connection, (connection, number))
    taken = [turns.take() for _ in range(9)]
    assert taken == [(connection, number) for number in range(3) for connection in range(3)]
    assert turns.take() is None


def test_who_was_away_has_saved_nothing_up() -> None:
    turns: FairTurns[str] = FairTurns()
    for number in range(10):
        turns.add("busy", "c", f"b{number}")
        turns.take()
        turns.spend("busy", 1.0)
    for number in range(4):
        turns.add("busy", "c", f"busy {number}")
        turns.add("new", "c", f"new {number}")
    order = []
    for _ in range(8):
        order.append(turns.take())
        turns.spend(str(order[-1]).split()[0], 1.0)
    assert order[:2] == ["new 0", "busy 0"]
    assert sorted(order[:4]) == ["busy 0", "busy 1", "new 0", "new 1"]


def test_no_client_is_kept_for_ever() -> None:
    turns: FairTurns[int] = FairTurns()
    chance = random.Random(1)
    for number in range(5000):
        turns.add(f"client {number}", "c", number)
        assert turns.take() == number
        turns.spend(f"client {number}", chance.random() / 1000)
    assert len(turns._clients) < 1000
