"""The invariants of transactions pass clean histories, and find exactly their broken histories."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.histories.cases import Case, check_finds, is_found, passes
from tests.histories.invariants import (
    all_invariants,
    check_all,
    transactions,
    whole_transactions,
)
from tests.histories.operations import (
    CommittedRead,
    Deleted,
    Dump,
    FinalRead,
    History,
    Leaderless,
    Lossy,
    Operation,
    Outcome,
    Poll,
    Position,
    ProducerIdentity,
    Reason,
    Send,
    StableEnd,
    Transaction,
    WholeRead,
)
from tests.histories.transactions import Marker


def begun(name: str = "T", epoch: int = 0, at: float = 1) -> Transaction:
    return Transaction(name, "id", f"p{epoch}", 7, epoch, at)


def told(
    commits: bool, error: str | None = None, *, name: str = "T", epoch: int = 0, at: float = 3
) -> Transaction:
    """Return a transaction whose end was requested at that second and answered one second later."""
    transaction = begun(name, epoch)
    transaction.ask(at, commits=commits)
    transaction.finish(at + 1, error)
    return transaction


COMMITTED, ABORTED = told(True), told(False)
UNKNOWN = told(True, "REQUEST_TIMED_OUT")


def sent(
    number: int,
    offset: int | None,
    error: str | None = None,
    *,
    partition: int = 0,
    at: float = 2,
    transaction: str = "T",
    epoch: int = 0,
) -> Send:
    send = Send("a", f"p{epoch}", "t", partition, b"v%d" % number, -1, True, number, at)
    send.transaction = transaction
    send.finish(at + 0.5, error, offset=offset)
    return send


def polled(number: int, offset: int, at: float, partition: int = 0) -> Poll:
    return Poll("r", "s", "t", partition, offset, 1, b"v%d" % number, at, True)


def final(records: dict[int, int], end: int, partition: int = 0) -> FinalRead:
    return FinalRead("t", partition, _values(records), 0, end, 100, reached=end)


def committed(
    records: dict[int, int], end: int, partition: int = 0, reached: int | None = None, log_start: int = 0
) -> CommittedRead:
    reached = end if reached is None else reached
    return CommittedRead("t", partition, _values(records), log_start, end, 100, reached)


def _values(records: dict[int, int]) -> list[tuple[int, bytes]]:
    return [(offset, b"v%d" % number) for offset, number in records.items()]


def dump(*markers: Marker, partition: int = 0, start: int = 0) -> Dump:
    return Dump(1, "t", partition, start, 100, [], 100, list(markers))


def end(offset: int, at: float, partition: int = 0) -> StableEnd:
    return StableEnd("r", "t", partition, offset, at, at + 0.1)


def whole(index: int, *numbers: int, at: float = 9) -> WholeRead:
    """Return a whole read with number 1 in partition 1, and all others in partition 0."""
    records = [("t", int(number == 1), 5 if number == 2 else 0, b"v%d" % number) for number in numbers]
    return WholeRead("r", "s", index, records, at)


READS: tuple[Operation, ...] = tuple(
    Position("r", "s", "t", index, None, Reason.START, 1) for index in (0, 1)
)
TWO = (sent(0, 0), sent(1, 0, partition=1))
BOTH = (final({0: 0}, 2), final({0: 1}, 2, 1))
VISIBLE = (*BOTH, committed({0: 0}, 2), committed({0: 1}, 2, 1))
HIDDEN = (*BOTH, committed({}, 2), committed({}, 2, 1))
TAKEN_OVER = (ProducerIdentity("p0", 7, 0, 0, "id"), ProducerIdentity("p1", 7, 1, 5, "id"))

BEHIND_ANOTHER = (COMMITTED, sent(0, 6), begun("O", 1), sent(9, 1, transaction="O", epoch=1))
"""The committed transaction has written after an open one."""

CLEAN: list[Case] = [
    ("committed", [COMMITTED, *TWO, *VISIBLE, polled(0, 0, 3.5), end(2, 5)]),
    ("aborted", [ABORTED, *TWO, *HIDDEN]),
    ("nobody asked for its end", [begun(), *TWO, *HIDDEN]),
    ("unknown, and committed", [UNKNOWN, *TWO, *VISIBLE, polled(1, 0, 9, 1)]),
    ("unknown, and aborted", [UNKNOWN, *TWO, *HIDDEN]),
    (
        "a send without an answer is missing",
        [COMMITTED, sent(0, 0), sent(1, None, "TIMED_OUT"), final({0: 0}, 2), committed({0: 0}, 2)],
    ),
    (
        "deleted between the last two reads",  # seed 68
        [COMMITTED, *TWO, *BOTH, committed({}, 2, log_start=1), committed({0: 1}, 2, 1)],
    ),
    ("not to be seen before the commit was answered", [COMMITTED, *TWO, *VISIBLE, end(0, 3.5)]),
    (
        "a partition without a leader follows later",
        [COMMITTED, *TWO, *VISIBLE, Leaderless("t", 0, 3.5, 6), end(0, 5)],
    ),
    ("behind what is left of an older one", [*BEHIND_ANOTHER, Deleted("t", 0, 4, 4.2), end(4, 5)]),
    ("and at an earlier segment", [*BEHIND_ANOTHER, Deleted("t", 0, 4, 4.2), end(3, 5)]),  # seed 2213
    (
        "behind one that ended while there was no leader to be told of it",  # seed 1117
        [
            *(COMMITTED, sent(0, 6), told(False, name="O", epoch=1, at=5)),
            *(sent(9, 1, transaction="O", epoch=1), Leaderless("t", 0, 5.5, 6.5), end(1, 7)),
        ],
    ),
    ("replaced while it was being ended", [COMMITTED, *TWO, *VISIBLE, TAKEN_OVER[0], TAKEN_OVER[1]]),
    (
        "the next epoch of the same producer",
        [
            ProducerIdentity("p0", 7, 0, 0, "id"),
            ProducerIdentity("p0", 7, 1, 2.5, "id"),
            COMMITTED,
            *TWO,
            *VISIBLE,
        ],
    ),
    (
        "an answer to who was replaced comes late",
        [ProducerIdentity("p1", 7, 1, 5, "id"), ProducerIdentity("p0", 7, 0, 6, "id")],
    ),
    (
        "markers in their order",
        [
            *(COMMITTED, *TWO),
            dump(Marker(1, 7, 0, True, 1, 4), Marker(3, 8, 0, False, 1, 5)),
            dump(Marker(1, 7, 0, True, 1, 4), partition=1),
        ],
    ),
    (
        "read as a whole",
        [
            *[COMMITTED, *TWO, told(False, name="U"), sent(2, 5, transaction="U"), *READS, whole(6, 0, 1)],
            dump(Marker(1, 7, 0, True, 1, 6), Marker(7, 7, 0, False, 2, 7)),
            dump(Marker(1, 7, 0, True, 1, 6), partition=1),
        ],
    ),
    ("several writers of one transaction", [dump(Marker(1, 7, 1, True, 1, 4), Marker(2, 8, 1, False, 1, 4))]),
    ("deleted with its marker", [COMMITTED, *TWO, dump(start=1), dump(start=1, partition=1)]),
    (
        "an unclean election took its records and ended it",
        [
            Lossy("unclean election", 6, topic="t", partition=0),
            *(COMMITTED, *TWO, dump(Marker(1, 7, 0, False, -1, -1))),
            *(final({}, 2), committed({}, 2), final({0: 1}, 2, 1), committed({0: 1}, 2, 1)),
        ],
    ),
    (
        "an unclean election took its marker",
        [
            Lossy("unclean election", 6, topic="t", partition=0, from_offset=1, undecided=[(7, 0)]),
            *(COMMITTED, *TWO, polled(0, 0, 4)),
            *(final({0: 0}, 2), committed({}, 2), final({0: 1}, 2, 1), committed({0: 1}, 2, 1)),
        ],
    ),
]

BROKEN: dict[str, list[Case]] = {
    "TornTransaction": [
        ("half of it", [COMMITTED, *TWO, *BOTH, committed({0: 0}, 2), committed({}, 2, 1)]),
        ("half of what is unknown", [UNKNOWN, *TWO, *BOTH, committed({0: 0}, 2), committed({}, 2, 1)]),
        ("told that it is committed", [COMMITTED, *TWO, *HIDDEN]),
        (
            "an unclean election took another one's marker",
            [
                Lossy("unclean election", 6, topic="t", partition=0, from_offset=1, undecided=[(8, 0)]),
                *(COMMITTED, *TWO),
                *(final({0: 0}, 2), committed({}, 2), final({0: 1}, 2, 1), committed({0: 1}, 2, 1)),
            ],
        ),
        ("aborted, and there", [ABORTED, *TWO, *VISIBLE]),
        ("nobody asked to commit it", [begun(), *TWO, *VISIBLE]),
        ("the commit was refused", [told(True, "INVALID_TXN_STATE"), *TWO, *VISIBLE]),
    ],
    "UncommittedRead": [
        ("before anybody asked", [COMMITTED, *TWO, polled(0, 0, 2.9)]),
        ("aborted", [ABORTED, *TWO, polled(0, 0, 9)]),
        ("open", [begun(), *TWO, polled(0, 0, 9)]),
    ],
    "CommitNotVisible": [
        ("the marker lags", [COMMITTED, *TWO, end(0, 4.5)]),
        ("nothing is open there", [*BEHIND_ANOTHER, end(4, 5)]),
        ("nothing is open before", [COMMITTED, sent(0, 6), Deleted("t", 0, 4, 4.2), end(4, 5)]),
        (
            "it had a leader again by then",
            [COMMITTED, *TWO, Leaderless("t", 0, 1, 2), Leaderless("t", 1, 3, 5), end(0, 5)],
        ),
    ],
    "TornTransaction CommittedRetraction": [
        ("a reader got something of it", [UNKNOWN, *TWO, *HIDDEN, polled(0, 0, 9)]),
    ],
    "HangingTransaction": [
        ("it never ends", [begun(), sent(0, 0), final({0: 0}, 2), committed({}, 0)]),
        ("a reader stands still", [ABORTED, sent(0, 0), final({0: 0}, 2), committed({}, 2, reached=0)]),
    ],
    "ReplacedProducerWrites": [
        ("it is acknowledged", [begun(), *TAKEN_OVER, sent(0, 0, at=6)]),
        (
            "it is there all the same",
            [begun(), *TAKEN_OVER, sent(0, None, "TIMED_OUT", at=6), final({0: 0}, 2)],
        ),
        ("it commits", [*TAKEN_OVER, told(True, at=6)]),
    ],
    "WrittenAfterTheEnd": [
        ("it is acknowledged", [ABORTED, sent(0, 0, at=6)]),
        ("it is there all the same", [COMMITTED, sent(0, None, "TIMED_OUT", at=6), final({0: 0}, 2)]),
    ],
    "NotWhole": [
        ("out of order", [COMMITTED, *TWO, *READS, whole(5, 0), whole(4, 1)]),
        ("half of it", [COMMITTED, *TWO, *READS, whole(4, 0)]),
        (
            "two at once",
            [
                COMMITTED,
                told(True, name="U"),
                sent(0, 0),
                sent(2, 5, transaction="U"),
                *READS,
                whole(4, 0, 2),
            ],
        ),
        ("not asked for yet", [COMMITTED, *TWO, *READS, whole(4, 0, 1, at=2.9)]),
        ("aborted", [ABORTED, *TWO, *READS, whole(4, 0, 1)]),
        (
            "one is passed over",
            [
                *[
                    COMMITTED,
                    sent(0, 0),
                    told(True, name="U"),
                    sent(2, 5, transaction="U"),
                    *READS,
                    whole(5, 2),
                ],
                dump(Marker(1, 7, 0, True, 1, 4), Marker(6, 7, 0, True, 2, 5)),
            ],
        ),
    ],
    "MarkersContradict": [
        ("an order", [dump(Marker(1, 7, 0, True, 1, 5), Marker(3, 8, 0, False, 1, 4))]),
        ("twice", [dump(Marker(1, 7, 0, True, 1, 5), Marker(3, 7, 0, True, 1, 5))]),
        (
            "two outcomes",
            [dump(Marker(1, 7, 0, True, 1, 5)), dump(Marker(1, 7, 0, False, 1, 5), partition=1)],
        ),
        ("none", [COMMITTED, sent(0, 0), dump()]),
        ("not as told", [COMMITTED, sent(0, 0), dump(Marker(1, 7, 0, False, 1, 5))]),
        ("nobody's decision", [dump(Marker(1, 7, 0, False, -1, -1))]),
    ],
}


@passes(CLEAN)
def test_a_clean_history_passes(operations: Sequence[Operation]) -> None:
    check_all(History(operations))


@is_found(BROKEN)
def test_a_broken_history_is_found(names: set[str], operations: Sequence[Operation]) -> None:
    check_finds(names, operations)


def test_every_invariant_of_transactions_has_a_broken_history() -> None:
    modules = (transactions.__name__, whole_transactions.__name__)
    ours = {invariant.name for invariant in all_invariants() if type(invariant).__module__ in modules}
    assert ours == {name for known in BROKEN for name in known.split()}


def test_a_commit_that_was_asked_for_again_may_have_been_done() -> None:
    transaction = begun()
    transaction.ask(1, commits=True)
    transaction.finish(2, "PRODUCER_FENCED", tried_before=True)
    assert transaction.outcome is Outcome.INFO
    assert transaction.is_committed is None


def test_transactions_are_kept(tmp_path: Path) -> None:
    history = History([COMMITTED, *TWO, *VISIBLE, end(2, 5), dump(Marker(1, 7, 0, True, 1, 4)), begun("U")])
    history.write_to(tmp_path / "history")
    assert list(History.read_from(tmp_path / "history")) == list(history)
