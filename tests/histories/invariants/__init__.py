"""Promises of a cluster, one class each, judged on histories of client operations.

Records are distinguished by their values, so a recorder of a history sends each value once. All invariants judge a
whole history at once and take time in proportion to its length.
"""

from __future__ import annotations

from ..operations import History
from .base import HistoryBroken, Invariant, InvariantBroken
from .causes import CircularReads, EffectBeforeCause
from .compaction import NotTheLastOfItsKey
from .epochs import RecordReplaced
from .facts import Facts
from .groups import CommittedOffsetWentBack, TwoOwners, ZombieCommit
from .reading import PollsOutOfOrder, Retraction, SkippedRecord, TruncationNotReported
from .records import (
    AcknowledgedAfterFailedAppend,
    AcknowledgedElsewhere,
    Duplicate,
    FailedSendAppears,
    InconsistentOffset,
    LostWrite,
    OnlyWhatWasSent,
    ProducerIdentityShared,
    SendsOutOfOrder,
    SequenceRefusedWithoutReason,
    UnseenAfterHeal,
)
from .replicas import HighWatermarkWentBack, ReplicaDivergence
from .service import CopyDiffers, NotServing, WrongAnswer
from .shared_transactions import VersionNotOnce, VersionWentBack, WriterOutlivesItsOwner
from .transactions import (
    CommitNotVisible,
    CommittedRetraction,
    HangingTransaction,
    MarkersContradict,
    ReplacedProducerWrites,
    TornTransaction,
    UncommittedRead,
    WrittenAfterTheEnd,
)
from .whole_transactions import NotWhole

__all__ = [
    "AcknowledgedAfterFailedAppend",
    "AcknowledgedElsewhere",
    "CircularReads",
    "CommitNotVisible",
    "CommittedOffsetWentBack",
    "CommittedRetraction",
    "CopyDiffers",
    "Duplicate",
    "EffectBeforeCause",
    "FailedSendAppears",
    "HangingTransaction",
    "HighWatermarkWentBack",
    "HistoryBroken",
    "InconsistentOffset",
    "Invariant",
    "InvariantBroken",
    "LostWrite",
    "MarkersContradict",
    "NotServing",
    "NotTheLastOfItsKey",
    "NotWhole",
    "OnlyWhatWasSent",
    "PollsOutOfOrder",
    "ProducerIdentityShared",
    "RecordReplaced",
    "ReplacedProducerWrites",
    "ReplicaDivergence",
    "Retraction",
    "SendsOutOfOrder",
    "SequenceRefusedWithoutReason",
    "SkippedRecord",
    "TornTransaction",
    "TruncationNotReported",
    "TwoOwners",
    "UncommittedRead",
    "UnseenAfterHeal",
    "VersionNotOnce",
    "VersionWentBack",
    "WriterOutlivesItsOwner",
    "WrittenAfterTheEnd",
    "WrongAnswer",
    "ZombieCommit",
    "all_invariants",
    "check_all",
]


def all_invariants() -> list[Invariant]:
    """Return an instance of every invariant."""
    return [
        LostWrite(),
        UnseenAfterHeal(),
        InconsistentOffset(),
        RecordReplaced(),
        ReplicaDivergence(),
        Duplicate(),
        SendsOutOfOrder(),
        PollsOutOfOrder(),
        SkippedRecord(),
        Retraction(),
        HighWatermarkWentBack(),
        TruncationNotReported(),
        AcknowledgedAfterFailedAppend(),
        FailedSendAppears(),
        OnlyWhatWasSent(),
        AcknowledgedElsewhere(),
        SequenceRefusedWithoutReason(),
        ProducerIdentityShared(),
        CommittedOffsetWentBack(),
        ZombieCommit(),
        TwoOwners(),
        CopyDiffers(),
        NotServing(),
        WrongAnswer(),
        TornTransaction(),
        UncommittedRead(),
        CommitNotVisible(),
        CommittedRetraction(),
        HangingTransaction(),
        ReplacedProducerWrites(),
        WrittenAfterTheEnd(),
        MarkersContradict(),
        NotWhole(),
        CircularReads(),
        EffectBeforeCause(),
        NotTheLastOfItsKey(),
        VersionNotOnce(),
        VersionWentBack(),
        WriterOutlivesItsOwner(),
    ]


def check_all(history: History) -> None:
    """Judge a history by all invariants. Raises HistoryBroken, which names each violated invariant."""
    facts = Facts(history)
    broken: list[InvariantBroken] = []
    for invariant in all_invariants():
        try:
            invariant.check_facts(facts)
        except InvariantBroken as error:
            broken.append(error)
    if broken:
        raise HistoryBroken(broken, history.counts())
