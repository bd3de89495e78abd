"""The invariants about reads in transactions pass clean histories, and find their broken histories."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.histories.cases import Case, check_finds, is_found, passes
from tests.histories.invariants import CircularReads, InvariantBroken, check_all
from tests.histories.operations import Dump, History, Lossy, Operation, Poll, Send, Transaction
from tests.histories.transactions import Marker

NUMBERS = {"A": 0, "B": 1, "C": 2}


def ended(
    name: str, asked: float, answered: float, error: str | None = None, *, commits: bool = True
) -> Transaction:
    """Return a transaction with these times of its end's request and answer; after an error its outcome is unknown."""
    transaction = Transaction(name, name, name, NUMBERS[name], 0, 1)
    transaction.ask(asked, commits=commits)
    transaction.finish(answered, error, tried_before=True)
    return transaction


def wrote(name: str) -> Send:
    """Return a send of one record to the transaction's own partition."""
    number = NUMBERS[name]
    send = Send(name, name, "t", number, name.encode(), -1, True, 0, 1.5, transaction=name)
    send.finish(2, offset=0)
    return send


def read(reader: str, writer: str, at: float, *, committed: bool = True) -> Poll:
    """Return a poll, in a transaction, of another transaction's record."""
    value = writer.encode()
    return Poll(reader, f"{reader} reads", "t", NUMBERS[writer], 0, 1, value, at, committed, reader)


def log(name: str, commit_index: int, *, commits: bool = True) -> Dump:
    """Return a dump of the partition to which the transaction wrote, with its marker."""
    number = NUMBERS[name]
    return Dump(1, "t", number, 0, 100, [], 100, [Marker(1, number, 0, commits, 1, commit_index)])


RECORDS = (wrote("A"), wrote("B"), wrote("C"))
A, B, C = ended("A", 3, 4), ended("B", 5, 6), ended("C", 7, 8)
IN_TURN = (A, B, C, *RECORDS)
AT_ONCE = (ended("A", 3, 9), ended("B", 3, 9), ended("C", 3, 9), *RECORDS)
"""Concurrent transactions, whose order only their reads define."""
UNKNOWN = (ended("A", 3, 9, "TIMED_OUT"), ended("B", 3, 9, "TIMED_OUT"), *RECORDS[:2])

CLEAN: list[Case] = [
    ("each has read the one before", [*IN_TURN, read("B", "A", 4.5), read("C", "B", 6.5)]),
    ("one has read both", [*IN_TURN, read("C", "A", 4.5), read("C", "B", 6.5)]),
    ("before the commit was answered", [*IN_TURN, read("B", "A", 3.5)]),
    ("at the same time", [*AT_ONCE, read("B", "A", 3), read("C", "B", 3), read("C", "A", 3)]),
    (
        "a reader of everything draws no conclusions",
        [*IN_TURN, read("A", "B", 2, committed=False), read("B", "A", 4.5)],
    ),
    (
        "who aborts has had no effect",
        [ended("A", 3, 9, commits=False), ended("B", 3, 9), *RECORDS[:2], read("A", "B", 3)],
    ),
    ("nobody knows what became of them", [*UNKNOWN, read("B", "A", 3)]),
    ("decided in turn", [*IN_TURN, read("B", "A", 4.5), log("A", 5), log("B", 6), log("C", 9)]),
    ("decided at the same time", [*AT_ONCE, log("A", 9), log("B", 5), log("C", 6)]),
    (
        "it had timed out before it read",
        [
            A,
            ended("B", 5, 6, "FENCED"),
            *RECORDS[:2],
            read("B", "A", 4.5),
            log("A", 5),
            log("B", 4, commits=False),
        ],
    ),
    (
        "in another order where records were lost",
        [*IN_TURN, Lossy("unclean election", 3, topic="t", partition=0), log("A", 9), log("B", 6)],
    ),
]

BROKEN: dict[str, list[Case]] = {
    "CircularReads": [
        ("two have read each other", [*AT_ONCE, read("A", "B", 3), read("B", "A", 3)]),
        (
            "three in a circle",
            [*AT_ONCE, read("A", "C", 3), read("B", "A", 3), read("C", "B", 3)],
        ),
        ("its own records", [*AT_ONCE, read("A", "A", 3)]),
        ("unknown, and read all the same", [*UNKNOWN, read("A", "B", 3), read("B", "A", 3)]),
        (
            "whatever was lost",
            [*AT_ONCE, Lossy("power failed", 3), read("A", "B", 3), read("B", "A", 3)],
        ),
        ("it was over before its cause was asked for", [*IN_TURN, read("A", "B", 5)]),
        ("it was over before a cause of its cause was", [*IN_TURN, read("A", "B", 8.5), read("B", "C", 7)]),
    ],
    "CircularReads UncommittedRead": [
        ("one reads too early", [*IN_TURN, read("A", "B", 2.9), read("B", "A", 4.5)]),
    ],
    "EffectBeforeCause": [
        ("decided before what it had read", [*AT_ONCE, read("B", "A", 3), log("A", 9), log("B", 5)]),
        ("decided before what was answered before", [*IN_TURN, log("A", 9), log("B", 5)]),
        ("two are one", [*IN_TURN, log("A", 5), log("B", 5)]),
    ],
}


@passes(CLEAN)
def test_a_clean_history_passes(operations: Sequence[Operation]) -> None:
    check_all(History(operations))


@is_found(BROKEN)
def test_a_broken_history_is_found(names: set[str], operations: Sequence[Operation]) -> None:
    check_finds(names, operations)


def test_the_message_names_the_circle() -> None:
    history = History([*AT_ONCE, read("A", "C", 3), read("B", "A", 3), read("C", "B", 3)])
    with pytest.raises(InvariantBroken) as caught:
        CircularReads().check(history)
    for reader, writer in (("A", "C"), ("B", "A"), ("C", "B")):
        assert (
            f"{reader} has read what {writer} wrote: {reader} reads got b'{writer}'" in caught.value.message
        )


def test_twenty_thousand_transactions_in_a_row_are_judged() -> None:
    """The check takes linear time although each transaction depends on all earlier ones."""
    history, count = History(), 20_000
    for number in range(count):
        name, value = f"T{number}", b"%d" % number
        transaction = Transaction(name, name, name, number, 0, number)
        transaction.ask(number + 0.4, commits=True)
        transaction.finish(number + 0.5)
        send = Send(name, name, "t", 0, value, -1, True, 0, number + 0.1, transaction=name)
        send.finish(number + 0.2, offset=number)
        history.add(transaction)
        history.add(send)
        if number:
            before = b"%d" % (number - 1)
            history.add(Poll("r", "s", "t", 0, number - 1, 1, before, number + 0.3, True, name))
    check_all(history)


def test_what_was_read_in_a_transaction_is_kept(tmp_path: Path) -> None:
    history = History([A, read("A", "B", 2)])
    history.write_to(tmp_path / "history")
    assert list(History.read_from(tmp_path / "history")) == list(history)
