"""The invariants of shared transactions pass clean histories, and find their broken histories."""

from __future__ import annotations

from collections.abc import Sequence

from tests.histories.cases import Case, check_finds, is_found, passes
from tests.histories.invariants import check_all
from tests.histories.operations import (
    CommittedRead,
    FinalRead,
    History,
    Operation,
    Position,
    ProducerIdentity,
    Reason,
    Send,
    ToldVersion,
    Transaction,
    WholeRead,
)


def owner(
    name: str,
    commits: bool | None = True,
    error: str | None = None,
    *,
    epoch: int = 0,
    at: float = 3,
    version: int = 1,
) -> Transaction:
    """Return the owner's part, ended at that second and answered one second later; `commits` None: never ended."""
    transaction = Transaction(name, "job", f"d{epoch}", 7, epoch, 1, app_version=version)
    return _ended(transaction, commits, error, at)


def writer(
    name: str, of: str, commits: bool | None = True, error: str | None = None, *, at: float = 3
) -> Transaction:
    number = int(name[1:])
    transaction = Transaction(name, f"writer {number}", name, number, 0, 1, owner=of)
    return _ended(transaction, commits, error, at)


def _ended(transaction: Transaction, commits: bool | None, error: str | None, at: float) -> Transaction:
    if commits is not None:
        transaction.ask(at, commits=commits)
        transaction.finish(at + 1, error, tried_before=error is not None)
    return transaction


def before(name: str, version: int = 1, at: float = 5) -> Transaction:
    """Return the owner's part, answered that its version was committed before."""
    transaction = owner(name, None, version=version)
    transaction.ask(at, commits=True)
    transaction.finish_as_committed_before(at + 1)
    return transaction


def sent(number: int, transaction: str, at: float = 2) -> Send:
    """Return a send that is acknowledged at the offset of its number."""
    send = Send("a", transaction, "t", 0, b"v%d" % number, -1, True, number, at)
    send.transaction = transaction
    send.finish(at + 0.5, offset=number)
    return send


def reads(*committed: int) -> list[Operation]:
    """Return final reads of records 0 to 4, of which these are committed."""
    values = [(number, b"v%d" % number) for number in range(5)]
    return [
        FinalRead("t", 0, values, 0, 9, 100, 9),
        CommittedRead("t", 0, [values[number] for number in committed], 0, 9, 100, 9),
    ]


def told(version: int | None, at: float) -> ToldVersion:
    return ToldVersion("d", "job", version, at, at + 0.1)


WRITTEN = [sent(0, "A"), sent(1, "w1"), sent(2, "w2"), sent(3, "B"), sent(4, "w3")]
LOST = "REQUEST_TIMED_OUT"
FIRST = [owner("A"), writer("w1", "A"), writer("w2", "A", commits=False)]
FIRST_UNKNOWN = [owner("A", True, LOST), writer("w1", "A", True, LOST), writer("w2", "A", False, LOST)]
AGAIN = [owner("B", epoch=1, at=6), writer("w3", "B", at=6)]
GIVEN_UP = [owner("B", None, epoch=1), writer("w3", "B", None)]
READER = Position("r", "s", "t", 0, None, Reason.START, 1)


def whole(*numbers: int) -> WholeRead:
    return WholeRead("r", "s", 4, [("t", 0, number, b"v%d" % number) for number in numbers], 9)


CLEAN: list[Case] = [
    ("the chosen writer's", [*FIRST, *GIVEN_UP, *WRITTEN, *reads(0, 1), told(None, 0), told(1, 5)]),
    ("done again", [*FIRST_UNKNOWN, *AGAIN, *WRITTEN, *reads(3, 4), told(None, 5), told(1, 8)]),
    ("not known, and there", [*FIRST_UNKNOWN, *GIVEN_UP, *WRITTEN, *reads(0, 1), told(1, 5)]),
    ("committed before", [*FIRST, before("B"), writer("w3", "B", False), *WRITTEN, *reads(0, 1)]),
    (
        "read as a whole",
        [*FIRST, *GIVEN_UP, *WRITTEN, READER, whole(0, 1)],
    ),
]

TAKEN_OVER = ProducerIdentity("d1", 7, 1, 5, "job")

BROKEN: dict[str, list[Case]] = {
    "VersionNotOnce": [
        ("twice", [*FIRST, *AGAIN, *WRITTEN, *reads(0, 1, 3, 4)]),
        ("the owner's part alone", [*FIRST_UNKNOWN, *GIVEN_UP, *WRITTEN, *reads(0)]),
        ("a writer's part alone", [*FIRST_UNKNOWN, *GIVEN_UP, *WRITTEN, *reads(1)]),
        ("told, and not there", [*FIRST_UNKNOWN, *GIVEN_UP, *WRITTEN, *reads(), told(1, 5)]),
        ("nobody had committed before", [before("A")]),
    ],
    "TornTransaction": [
        ("a writer who was not chosen", [*FIRST, *GIVEN_UP, *WRITTEN, *reads(0, 1, 2)]),
    ],
    "VersionWentBack": [
        ("below what was told", [*FIRST_UNKNOWN, told(1, 5), told(None, 6)]),
        ("below what was committed", [*FIRST, told(None, 5)]),
        ("nobody's", [*FIRST, told(2, 5)]),
    ],
    "WriterOutlivesItsOwner": [
        ("it is acknowledged", [owner("A", None), writer("w1", "A", None), TAKEN_OVER, sent(1, "w1", 6)]),
    ],
    "NotWhole": [
        ("without a writer", [*FIRST, *GIVEN_UP, *WRITTEN, READER, whole(0)]),
        ("with one who was not chosen", [*FIRST, *GIVEN_UP, *WRITTEN, READER, whole(0, 1, 2)]),
    ],
}


@passes(CLEAN)
def test_a_clean_history_passes(operations: Sequence[Operation]) -> None:
    check_all(History(operations))


@is_found(BROKEN)
def test_a_broken_history_is_found(names: set[str], operations: Sequence[Operation]) -> None:
    check_finds(names, operations)
