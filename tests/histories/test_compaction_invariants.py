"""Histories of compacted topics: records that compaction may remove are not missed, all others are."""

from __future__ import annotations

from collections.abc import Sequence

from tests.histories.cases import Case, check_finds, is_found, passes
from tests.histories.invariants import check_all
from tests.histories.operations import (
    CommittedRead,
    Dump,
    FinalRead,
    History,
    Operation,
    Poll,
    Position,
    Reason,
    Send,
    Transaction,
)


def sent(number: int, key: bytes | None = b"k", transaction: str | None = None) -> Send:
    """Return a send that is acknowledged at the offset of its number."""
    send = Send("a", "p", "t", 0, b"v%d" % number, -1, True, number, 2 + number / 10)
    send.key, send.transaction = key, transaction
    send.finish(2.5 + number / 10, offset=number)
    return send


def refused(number: int) -> Send:
    """Return a send whose repetition is refused, long after later sends were acknowledged."""
    send = sent(number)
    send.finish(6, "OUT_OF_ORDER_SEQUENCE_NUMBER", tried_before=True)
    return send


def ended(name: str, commits: bool, error: str | None = None) -> Transaction:
    transaction = Transaction(name, "id", "p", 7, 0, 1)
    transaction.ask(4, commits=commits)
    transaction.finish(5, error, tried_before=True)
    return transaction


def final(*numbers: int) -> FinalRead:
    return FinalRead("t", 0, [(number, b"v%d" % number) for number in numbers], 0, 9, 100, 9)


def committed(*numbers: int) -> CommittedRead:
    return CommittedRead("t", 0, [(number, b"v%d" % number) for number in numbers], 0, 9, 100, 9)


def polled(number: int, *, committed: bool = True) -> list[Operation]:
    session = f"s{committed}"
    return [
        Position("r", session, "t", 0, number, Reason.START, 6),
        Poll("r", session, "t", 0, number, 1, b"v%d" % number, 7, committed),
    ]


ABORTED, UNKNOWN = ended("T", False), ended("T", True, "REQUEST_TIMED_OUT")

CLEAN: list[Case] = [
    ("nothing was taken", [sent(0), sent(1), final(0, 1), committed(0, 1)]),
    ("the first was taken", [sent(0), sent(1), *polled(0), final(1), committed(1)]),
    ("of each key the last is left", [sent(0), sent(1), sent(2, b"l"), final(1, 2), committed(1, 2)]),
    (
        "what was aborted is gone",
        [ABORTED, sent(0), sent(1, transaction="T"), *polled(1, committed=False), final(0), committed(0)],
    ),
    ("perhaps aborted, and gone", [UNKNOWN, sent(0), sent(1, transaction="T"), final(0), committed(0)]),
    ("perhaps committed", [UNKNOWN, sent(0), sent(1, transaction="T"), final(1), committed(1)]),
    (
        "half of a transaction was written over",
        [
            ended("T", True),
            sent(0, transaction="T"),
            sent(1, b"l", "T"),
            sent(2),
            final(1, 2),
            committed(1, 2),
        ],
    ),
    (
        "what is sent again is gone, and what came behind it is not",
        [refused(0), sent(1), final(1), committed(1)],
    ),
    (
        "replicas differ",
        [
            sent(0),
            sent(1),
            *(Dump(broker, "t", 0, 0, 9, [(broker, 1, broker)], 90) for broker in (0, 1)),
            final(1),
            committed(1),
        ],
    ),
]

BROKEN: dict[str, list[Case]] = {
    "SequenceRefusedWithoutReason": [
        ("what is sent again is there", [refused(1), final(1), committed(1)]),
        ("it is the last of its key", [refused(2), sent(3, b"l"), final(2, 3), committed(2, 3)]),
    ],
    "LostWrite NotTheLastOfItsKey": [
        ("the last was taken", [sent(0), sent(1), sent(2, b"l"), final(0, 2), committed(0, 2)]),
        ("all of a key were taken", [sent(0), sent(1), sent(2, b"l"), final(2), committed(2)]),
    ],
    "TornTransaction CommittedRetraction NotTheLastOfItsKey": [
        (
            "what a reader got and was not told to be committed was taken",
            [UNKNOWN, sent(0), sent(1, transaction="T"), *polled(1), final(0, 1), committed(0)],
        ),
    ],
    "LostWrite": [
        ("a record without a key", [sent(0, None), sent(1, None), final(1), committed(1)]),
    ],
    "TornTransaction": [
        (
            "what was aborted is there again",
            [ABORTED, sent(0), sent(1, transaction="T"), final(0, 1), committed(1)],
        ),
    ],
}


@passes(CLEAN)
def test_a_clean_history_passes(operations: Sequence[Operation]) -> None:
    check_all(History(operations))


@is_found(BROKEN)
def test_a_broken_history_is_found(names: set[str], operations: Sequence[Operation]) -> None:
    check_finds(names, operations)
