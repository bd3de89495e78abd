"""Every invariant passes clean histories, and finds exactly its broken histories."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.histories import test_cause_invariants as of_causes
from tests.histories import test_compaction_invariants as of_compaction
from tests.histories import test_shared_transaction_invariants as of_shared
from tests.histories import test_transaction_invariants as of_transactions
from tests.histories.cases import Case, check_finds, is_found, passes
from tests.histories.invariants import HistoryBroken, InvariantBroken, all_invariants, check_all
from tests.histories.operations import (
    AppendFailed,
    BegunAnew,
    Commit,
    Copied,
    Deleted,
    Dump,
    Fetched,
    FinalRead,
    Healed,
    History,
    Hung,
    Lossy,
    Operation,
    Outcome,
    Owned,
    Poll,
    Position,
    Probe,
    ProducerIdentity,
    Reason,
    Released,
    Send,
    Watermark,
)

UNCLEAN = Lossy("unclean election", 50, until_s=60, topic="t", from_offset=1)
UNCLEAN_EPOCH_5 = Lossy("unclean election", 50, until_s=60, topic="t", partition=0, leader_epoch=5)
OUT_OF_ORDER = "OUT_OF_ORDER_SEQUENCE_NUMBER"


def sent(
    number: int,
    offset: int | None,
    error: str | None = None,
    *,
    value: bytes | None = None,
    producer: str = "p",
    at: float | None = None,
    takes: float = 0.5,
    acks: int = -1,
    idempotent: bool = True,
    broker: int | None = None,
    tried_before: bool = False,
) -> Send:
    """Return the send of record `v<number>`, by default at second `number`, with its answer."""
    begun = number if at is None else at
    send = Send("a", producer, "t", 0, value or b"v%d" % number, acks, idempotent, number, begun)
    send.finish(begun + takes, error, offset=offset, broker=broker, tried_before=tried_before)
    return send


def overtaken(number: int, offset: int) -> Send:
    send = sent(number, offset)
    send.keeps_order = False
    return send


def unanswered(number: int, at: float | None = None) -> Send:
    return Send("a", "p", "t", 0, b"v%d" % number, -1, True, number, number if at is None else at)


def polled(offset: int, value: bytes, at: float = 10, session: str = "s", epoch: int = 1) -> Poll:
    return Poll("c", session, "t", 0, offset, epoch, value, at)


def at(offset: int | None, reason: Reason, at_s: float = 10, session: str = "s") -> Position:
    return Position("c", session, "t", 0, offset, reason, at_s)


def final(*values: bytes | None, topic: str = "t", log_start: int = 0, end: int | None = None) -> FinalRead:
    """Return a final read with these values at offsets 0, 1, ...; None leaves an offset empty."""
    records = [(offset, value) for offset, value in enumerate(values) if value is not None]
    return FinalRead(topic, 0, records, log_start, end, at_s=100)


def commit(
    offset: int,
    at_s: float,
    error: str | None = None,
    generation: int = 1,
    member: str = "m",
    *,
    takes: float = 0.5,
    own_epoch: bool = False,
    tried_before: bool = False,
) -> Commit:
    made = Commit("g", member, generation, "t", 0, offset, at_s, own_epoch=own_epoch)
    made.finish(at_s + takes, error, tried_before=tried_before)
    return made


def told(offset: int, at_s: float) -> Fetched:
    return Fetched("g", "t", 0, offset, at_s, at_s + 0.5)


def dump(broker: int, *entries: tuple[int, int, int], start: int = 0, high: int = 2) -> Dump:
    return Dump(broker, "t", 0, start, high, list(entries))


def mark(high: int, at_s: float, *, epoch: int = 1, broker: int = 1, start: int = 0) -> Watermark:
    return Watermark("c", "t", 0, epoch, high, start, at_s, broker)


def owned(member: str, generation: int, from_s: float, partition: int = 0) -> Owned:
    return Owned("g", generation, member, "t", partition, from_s)


THREE: list[Operation] = [sent(0, 0), sent(1, 1), sent(2, 2)]
THREE_READ: list[Operation] = [
    at(0, Reason.START),
    polled(0, b"v0"),
    polled(1, b"v1"),
    polled(2, b"v2"),
    final(b"v0", b"v1", b"v2", end=3),
]

CLEAN: list[Case] = [
    (
        "an idempotent producer sent one again under another number, which stands behind a later one",
        [sent(0, 2, idempotent=False), sent(1, 1), sent(2, 3)],
    ),
    (
        "a record that its producer let be overtaken",
        [overtaken(0, 1), sent(1, 0), sent(2, 2), final(b"v1", b"v0", b"v2")],
    ),
    ("nothing at all", []),
    ("everything read", [*THREE, *THREE_READ, Healed(20, 5)]),
    ("no final read", [*THREE, polled(0, b"v0"), polled(1, b"v1")]),
    (
        "hidden by a deletion, and there again",
        [*THREE, at(0, Reason.START), Deleted("t", 0, 2, 5), polled(2, b"v2"), THREE_READ[-1]],
    ),
    (
        "again by who did not know it, and known again by who did",
        [sent(0, 1, at=49, takes=5), UNCLEAN, final(b"v0", b"v0")],
    ),
    (
        "deleted, forgotten, and sent again",
        [sent(0, 1, takes=9), BegunAnew("t", 0, 1, 5), polled(0, b"v0"), final(None, b"v0", log_start=1)],
    ),
    (
        "deleted, and one behind it was not",
        [sent(0, 0), sent(1, None, OUT_OF_ORDER, takes=9), sent(2, 2), final(None, None, b"v2", log_start=2)],
    ),
    ("below the log start is gone by right", [*THREE, final(None, None, b"v2", log_start=2)]),
    (
        "deleted up to the end while a reader was on its way there",
        [*THREE, Deleted("t", 0, 3, 5), Healed(20, 5), final(None, b"v1", log_start=3, end=3)],
    ),
    (
        "what was lost was sent again to where it had been",
        [
            *(sent(0, 0), sent(1, 1), sent(2, 2, takes=70)),
            *(polled(0, b"v0"), polled(1, b"v1"), polled(2, b"v2"), UNCLEAN, sent(61, 1)),
            final(b"v0", b"v61", b"v2"),
        ],
    ),
    (
        "a deletion that a later leader has not heard of, by whose word a consumer began anew",
        [*THREE, *THREE_READ[:2], Deleted("t", 0, 3, 5), polled(0, b"v0"), THREE_READ[-1]],
    ),
    ("refused once after a loss", [UNCLEAN, sent(70, None, OUT_OF_ORDER), sent(80, 1), final(None, b"v80")]),
    (
        "replaced by a loss",
        [
            unanswered(0),
            unanswered(1),
            UNCLEAN_EPOCH_5,
            polled(0, b"v0"),
            polled(0, b"v1", session="r", epoch=5),
        ],
    ),
    ("an unknown send appears", [sent(0, 0), unanswered(1), final(b"v0", b"v1")]),
    ("an unknown send does not appear", [sent(0, 0), unanswered(1), final(b"v0")]),
    ("a refused send does not appear", [sent(0, 0), sent(1, None, "NOT_ENOUGH_REPLICAS"), final(b"v0")]),
    (
        "a retry that was refused appears",
        [sent(0, None, "NOT_ENOUGH_REPLICAS", tried_before=True), final(b"v0")],
    ),
    ("acks=1 may be lost", [sent(0, 0, acks=1, idempotent=False), sent(1, 0), final(b"v1")]),
    ("acks=0 may be lost", [sent(0, None, acks=0, idempotent=False), sent(1, 0), final(b"v1")]),
    ("acknowledged without an offset", [sent(0, -1), final(b"v0")]),
    ("without idempotence twice", [sent(0, 1, idempotent=False), final(b"v0", b"v0")]),
    (
        "without idempotence records sent together change places",
        [sent(0, 1, idempotent=False, takes=5), sent(1, 0, idempotent=False, takes=5), final(b"v1", b"v0")],
    ),
    (
        "an unknown send stands between acknowledged ones",
        [sent(0, 0), unanswered(1), sent(2, 2), final(b"v0", b"v1", b"v2")],
    ),
    (
        "a seek back",
        [*THREE, *THREE_READ[:-1], at(0, Reason.SEEK), polled(0, b"v0"), polled(1, b"v1"), THREE_READ[-1]],
    ),
    ("a seek forward", [*THREE, at(0, Reason.START), at(2, Reason.SEEK), polled(2, b"v2"), THREE_READ[-1]]),
    ("from the end on", [*THREE, at(None, Reason.START), polled(2, b"v2"), THREE_READ[-1]]),
    ("offsets that hold nothing", [sent(0, 0), sent(1, 7), polled(0, b"v0"), polled(7, b"v1")]),
    (
        "an unclean election takes what was above, and consumers hear of it",
        [
            *THREE,
            *THREE_READ[:-1],
            UNCLEAN,
            at(1, Reason.TRUNCATION, 61),
            sent(3, 1, at=61),
            polled(1, b"v3", 62),
            final(b"v0", b"v3", end=2),
        ],
    ),
    (
        "a consumer that is sent forward since retention was faster",
        [
            *THREE,
            at(0, Reason.START),
            at(2, Reason.RESET),
            polled(2, b"v2"),
            final(None, None, b"v2", log_start=2),
        ],
    ),
    (
        "two copies sent by a pipeline that began anew",
        [sent(0, 0), sent(1, 1, value=b"v0", producer="p2"), final(b"v0", b"v0")],
    ),
    ("the disk is back", [AppendFailed(1, "t", 0, 5, 8), sent(9, 0, broker=1), final(b"v9")]),
    ("acknowledged by another broker", [AppendFailed(1, "t", 0, 5), sent(9, 0, broker=2), final(b"v9")]),
    (
        "a sequence breaks behind an unknown send",
        [sent(0, None, "REQUEST_TIMED_OUT"), sent(1, None, "OUT_OF_ORDER_SEQUENCE_NUMBER"), final()],
    ),
    (
        "a bumped epoch, then a new id",
        [
            ProducerIdentity("p", 5, 32766, 0),
            ProducerIdentity("p", 5, 32767, 1),
            ProducerIdentity("p", 6, 0, 2),
        ],
    ),
    (
        "replicas differ above the high watermark",
        [dump(1, (0, 1, 7), (2, 1, 8)), dump(2, (0, 1, 7), (2, 2, 9))],
    ),
    ("a replica starts later", [dump(1, (0, 1, 7), (1, 1, 8)), dump(2, (1, 1, 8), start=1)]),
    ("a later dump counts", [dump(1, (0, 1, 7)), dump(2, (0, 2, 9)), dump(2, (0, 1, 7))]),
    (
        "another leader knows less at first",
        [mark(2, 1), mark(1, 2, epoch=2, broker=2), mark(2, 3, epoch=2, broker=2)],
    ),
    ("commits", [told(-1, 0), commit(5, 1), told(5, 2), commit(7, 3), told(7, 4)]),
    ("an explicit lower commit", [commit(5, 1), commit(3, 2), told(3, 3)]),
    ("asked while a commit was on its way", [commit(5, 1), commit(7, 3, takes=5), told(5, 4), told(7, 4)]),
    (
        "an unknown commit comes into force late",
        [commit(5, 1), commit(7, 2, "REQUEST_TIMED_OUT"), told(5, 3), told(7, 4), told(7, 5)],
    ),
    (
        "an unknown commit, then a known one, then the unknown one",
        [commit(7, 2, "REQUEST_TIMED_OUT"), commit(5, 3), told(5, 4), told(7, 5)],
    ),
    (
        "an earlier attempt of a commit comes into force late",
        [commit(5, 1, tried_before=True), commit(7, 2), told(7, 3), told(5, 4)],
    ),
    (
        "a send fails soon after the faults, a later one is served",
        [Healed(20, 5), sent(21, None, "REQUEST_TIMED_OUT"), sent(26, 0), final(b"v26")],
    ),
    (
        "partitions change hands",
        [
            owned("m1", 1, 0),
            owned("m2", 1, 0, partition=1),
            commit(5, 1, member="m1"),
            Released("g", 1, "m1", "t", 0, 2),
            owned("m2", 2, 3),
            commit(6, 4, generation=2, member="m2"),
            commit(4, 5, "ILLEGAL_GENERATION", generation=1, member="m1"),
            told(6, 6),
        ],
    ),
    (
        "members at several epochs (KIP-848)",
        [owned("m2", 7, 0, partition=1), commit(5, 1, generation=6, member="m1", own_epoch=True)],
    ),
    ("an administrator's commit", [owned("m1", 3, 0), commit(0, 1, generation=-1, member="")]),
    ("a copy", [Copied("t", "u", True, 9), final(b"a", b"b"), final(b"b", b"a", topic="u")]),
    (
        "a copy of what was deleted since",
        [
            *(Copied("t", "u", False, 9), sent(0, 0), sent(1, 1), final(None, b"v1", log_start=1)),
            final(b"v0", b"v0", b"v1", topic="u"),
        ],
    ),
    ("a copy at least once", [Copied("t", "u", False, 9), final(b"a"), final(b"a", b"a", topic="u")]),
    ("failures before the end of the faults", [sent(0, None, "REQUEST_TIMED_OUT"), Healed(20, 5), final()]),
    ("too large, at any time", [Healed(20, 5), sent(30, None, "MESSAGE_TOO_LARGE")]),
    ("still on its way, within its time", [Healed(20, 5), unanswered(30), told(-1, 34)]),
    (
        "a probe is refused",
        [Probe("a", "a gap", ["OUT_OF_ORDER_SEQUENCE_NUMBER"], "OUT_OF_ORDER_SEQUENCE_NUMBER", 1)],
    ),
]

BROKEN: dict[str, list[Case]] = {
    "LostWrite": [
        ("a hole where it stood", [*THREE, final(b"v0", None, b"v2")]),
        ("read past by consumers as well", [*THREE, polled(0, b"v0"), final(b"v0", None, b"v2")]),
        ("below what a loss may take", [*THREE, UNCLEAN, final(None, b"v1", b"v2")]),
        ("sent after the loss", [sent(0, 0), UNCLEAN, sent(61, 1), sent(62, 2), final(b"v0", None, b"v62")]),
    ],
    "LostWrite InconsistentOffset": [
        ("a zombie's acknowledgement", [sent(0, 0), sent(1, 0, producer="q"), final(b"v0")])
    ],
    "UnseenAfterHeal": [
        ("the end is missing", [*THREE, final(b"v0", b"v1")]),
        ("without an offset", [sent(0, None), final()]),
    ],
    "UnseenAfterHeal Retraction": [
        ("read once, gone in the end", [*THREE, *THREE_READ[:-1], final(b"v0", None, b"v2")])
    ],
    "InconsistentOffset": [
        (
            "two consumers disagree",
            [unanswered(0), unanswered(1), polled(0, b"v0"), polled(0, b"v1", session="z")],
        ),
        (
            "acknowledged twice",
            [sent(0, 0, idempotent=False), sent(0, 0, value=b"w", idempotent=False), polled(0, b"v0")],
        ),
    ],
    "InconsistentOffset Retraction": [
        ("replaced", [unanswered(0), unanswered(1), polled(0, b"v0"), final(b"v1")])
    ],
    "AcknowledgedElsewhere": [("a retry is told another offset", [sent(0, 3), final(b"v0")])],
    "Duplicate": [
        ("a retry is appended again", [sent(0, 0), final(b"v0", b"v0")]),
        ("seen twice by a consumer", [sent(0, 0), polled(0, b"v0"), polled(1, b"v0")]),
        ("of unknown outcome", [unanswered(0), final(b"v0", b"v0")]),
        ("before it was deleted", [sent(0, 0), polled(0, b"v0"), polled(1, b"v0"), Deleted("t", 0, 2, 5)]),
        (
            "deleted, and known all the same",
            [sent(0, 1, takes=9), Deleted("t", 0, 1, 5), polled(0, b"v0"), polled(1, b"v0")],
        ),
        (
            "forgotten when it had been answered",
            [sent(0, 1), BegunAnew("t", 0, 1, 5), polled(0, b"v0"), polled(1, b"v0")],
        ),
        (
            "forgotten when it was there twice",
            [sent(0, 1, takes=9), BegunAnew("t", 0, 2, 5), polled(0, b"v0"), polled(1, b"v0")],
        ),
    ],
    "SendsOutOfOrder": [
        ("acknowledged offsets fall", [sent(0, 1), sent(1, 0)]),
        ("records of unknown outcome change places", [unanswered(0), unanswered(1), final(b"v1", b"v0")]),
        ("one waited for the other", [sent(0, 1, idempotent=False), sent(1, 0, idempotent=False)]),
        ("behind a record that may be overtaken", [overtaken(0, 3), sent(1, 1), sent(2, 0)]),
    ],
    "PollsOutOfOrder": [
        ("again", [*THREE, polled(0, b"v0"), polled(1, b"v1"), polled(1, b"v1")]),
        ("back", [*THREE, polled(0, b"v0"), polled(1, b"v1"), polled(0, b"v0")]),
        ("before the start", [*THREE, at(1, Reason.START), polled(0, b"v0")]),
    ],
    "SkippedRecord": [
        ("a record that stands there", [*THREE, polled(0, b"v0"), polled(2, b"v2"), THREE_READ[-1]]),
        ("a record that was acknowledged", [*THREE, polled(0, b"v0"), polled(2, b"v2")]),
        (
            "a record that a deletion leaves",
            [*THREE, at(0, Reason.START), Deleted("t", 0, 1, 5), polled(2, b"v2"), THREE_READ[-1]],
        ),
        ("the first one", [*THREE, at(0, Reason.COMMITTED), polled(1, b"v1"), THREE_READ[-1]]),
        ("reset to the end", [*THREE, at(0, Reason.START), at(3, Reason.RESET), THREE_READ[-1]]),
    ],
    "Retraction": [
        ("of an unknown send", [unanswered(0), polled(0, b"v0"), final()]),
        ("of a high watermark", [mark(2, 5), final(b"v0", end=1), unanswered(0)]),
        ("told to the consumer", [*THREE, *THREE_READ, at(1, Reason.TRUNCATION, 11)]),
        ("reset back", [*THREE, *THREE_READ, at(0, Reason.RESET, 11)]),
    ],
    "TruncationNotReported": [
        (
            "goes on behind a loss",
            [
                *THREE,
                *THREE_READ[:-1],
                UNCLEAN,
                *(sent(number, number - 60, at=number) for number in range(61, 64)),
                polled(3, b"v63", 70, epoch=2),
                final(b"v0", b"v61", b"v62", b"v63"),
            ],
        )
    ],
    "AcknowledgedAfterFailedAppend": [
        ("while the disk is out", [AppendFailed(1, "t", 0, 5), sent(9, 0, broker=1), final(b"v9")])
    ],
    "FailedSendAppears": [
        ("in the end", [sent(0, None, "NOT_ENOUGH_REPLICAS"), final(b"v0")]),
        ("to a consumer", [sent(0, None, "CORRUPT_MESSAGE"), polled(0, b"v0")]),
    ],
    "OnlyWhatWasSent": [("somebody else's bytes", [sent(0, 0), final(b"v0", b"?")])],
    "SequenceRefusedWithoutReason": [
        (
            "again, though nothing was lost since",
            [UNCLEAN, sent(70, None, OUT_OF_ORDER), sent(80, None, OUT_OF_ORDER)],
        ),
        ("after retention", [sent(0, 0), sent(1, None, "UNKNOWN_PRODUCER_ID"), final(b"v0")]),
        ("the very first", [sent(0, None, "OUT_OF_ORDER_SEQUENCE_NUMBER")]),
        (
            "with nothing behind it that its leader could know instead",
            [sent(0, 0), sent(1, None, OUT_OF_ORDER), final(None, None, log_start=2)],
        ),
    ],
    "ProducerIdentityShared": [
        ("given twice", [ProducerIdentity("p", 1, 0, 0), ProducerIdentity("q", 1, 0, 1)]),
        ("beyond the last epoch", [ProducerIdentity("p", 1, 32768, 0)]),
        ("wrapped", [ProducerIdentity("p", 1, 32767, 0), ProducerIdentity("p", 1, 0, 1)]),
    ],
    "ReplicaDivergence": [
        ("another digest", [dump(1, (0, 1, 7)), dump(2, (0, 1, 8))]),
        ("another epoch", [dump(1, (0, 1, 7)), dump(2, (0, 2, 7))]),
        ("a hole", [dump(1, (0, 1, 7), (1, 1, 8)), dump(2, (0, 1, 7)), dump(3, (0, 1, 7), (1, 1, 8))]),
    ],
    "HighWatermarkWentBack": [
        ("in one epoch", [mark(2, 1), mark(1, 2)]),
        ("the log start", [mark(2, 1, start=1), mark(2, 2, start=0)]),
        ("starts behind its end", [mark(2, 1, start=3)]),
    ],
    "CommittedOffsetWentBack": [
        ("an older one", [commit(5, 1), commit(7, 2), told(5, 3)]),
        ("nothing", [commit(5, 1), told(-1, 3)]),
        ("never committed", [commit(5, 1), told(6, 3)]),
        ("refused", [commit(5, 1), commit(6, 2, "ILLEGAL_GENERATION"), told(6, 3)]),
        ("seen, then gone", [commit(5, 1), commit(7, 2, "REQUEST_TIMED_OUT"), told(7, 3), told(5, 4)]),
        ("of the future", [told(5, 1), commit(5, 3)]),
    ],
    "ZombieCommit": [
        ("after a new generation", [owned("m2", 2, 3), commit(5, 4, generation=1, member="m1")]),
        (
            "after a commit of a new one",
            [commit(6, 1, generation=2, member="m2"), commit(5, 4, generation=1, member="m1")],
        ),
        (
            "of a partition that another member owns (KIP-848)",
            [owned("m2", 7, 0), commit(5, 1, generation=6, member="m1", own_epoch=True)],
        ),
    ],
    "TwoOwners": [("in one generation", [owned("m1", 1, 0), owned("m2", 1, 1)])],
    "CopyDiffers": [
        ("missing", [Copied("t", "u", False, 9), final(b"a", b"b"), final(b"a", topic="u")]),
        ("twice", [Copied("t", "u", True, 9), final(b"a"), final(b"a", b"a", topic="u")]),
        ("a stranger", [Copied("t", "u", False, 9), final(b"a"), final(b"a", b"z", topic="u")]),
    ],
    "NotServing": [
        ("a send fails, none is served", [Healed(20, 5), sent(21, None, "REQUEST_TIMED_OUT")]),
        ("a send fails late", [Healed(20, 5), sent(30, None, "NOT_ENOUGH_REPLICAS")]),
        ("a send takes too long", [Healed(20, 5), sent(30, 0, takes=6), final(b"v30")]),
        ("an old send is never answered", [unanswered(0), Healed(20, 5), told(-1, 40)]),
        ("a commit is never answered", [Commit("g", "m", 1, "t", 0, 5, 1), Healed(20, 5), told(-1, 40)]),
        ("the end is not reached", [sent(0, 0), Healed(20, 5), final(b"v0", end=2)]),
        (
            "the end is behind the log start, too",
            [sent(0, 0), Healed(20, 5), final(b"v0", log_start=2, end=3)],
        ),
        ("nobody could read", [sent(0, 0), Healed(20, 5)]),
        ("something hung", [Hung("c", "poll", 1, 9)]),
    ],
    "RecordReplaced": [
        (
            "in the same epoch",
            [unanswered(0), unanswered(1), UNCLEAN_EPOCH_5, polled(0, b"v0"), polled(0, b"v1", session="r")],
        ),
        (
            "in later ones",
            [
                *(unanswered(0), unanswered(1), UNCLEAN_EPOCH_5),
                *(polled(0, b"v0", epoch=5), polled(0, b"v1", session="r", epoch=6)),
            ],
        ),
    ],
    "WrongAnswer": [
        ("accepted", [Probe("a", "a gap", ["OUT_OF_ORDER_SEQUENCE_NUMBER"], None, 1)]),
        ("another error", [Probe("a", "an old epoch", ["FENCED_LEADER_EPOCH"], "UNKNOWN_SERVER_ERROR", 1)]),
    ],
}


@passes(CLEAN)
def test_a_clean_history_passes(operations: Sequence[Operation]) -> None:
    check_all(History(operations))


@is_found(BROKEN)
def test_a_broken_history_is_found(names: set[str], operations: Sequence[Operation]) -> None:
    check_finds(names, operations)


def test_every_invariant_has_a_broken_history_and_says_what_it_promises() -> None:
    names = {invariant.name for invariant in all_invariants()}
    assert names == {
        name
        for known in (
            *BROKEN,
            *of_transactions.BROKEN,
            *of_shared.BROKEN,
            *of_compaction.BROKEN,
            *of_causes.BROKEN,
        )
        for name in known.split()
    }
    for invariant in all_invariants():
        assert type(invariant).__doc__
        assert invariant.scenarios


def test_one_invariant_alone_names_the_operations() -> None:
    history = History([*THREE, final(b"v0", None, b"v2")])
    lost = next(invariant for invariant in all_invariants() if invariant.name == "LostWrite")
    with pytest.raises(InvariantBroken, match=r"LostWrite: p sent b'v1' .*ok at offset 1; read by nobody"):
        lost.check(history)


def test_many_findings_are_counted_and_only_some_are_shown() -> None:
    history = History(
        [*(sent(number, number) for number in range(100)), final(*[None] * 100, b"v100"), unanswered(100)]
    )
    with pytest.raises(HistoryBroken) as caught:
        check_all(history)
    assert "and 95 more" in str(caught.value)
    assert "Send ok 100" in str(caught.value)


def test_outcomes_are_counted() -> None:
    history = History([*THREE, unanswered(3), sent(4, None, "NOT_ENOUGH_REPLICAS"), commit(1, 1)])
    assert history.counts() == {
        "Send": 5,
        "Commit": 1,
        "Send ok": 3,
        "Send fail": 1,
        "Send info": 1,
        "Commit ok": 1,
    }
    assert history.sends[3].outcome is Outcome.INFO
