"""The operations of a history: requests and observations of a cluster's clients, and their storage.

A history is recorded by the clients, in a simulation or against real processes, and judged afterwards by
`tests.histories.invariants`. All times are seconds of one clock for the whole history; nothing here reads a clock.

    history = History()
    send = Send("p1", "p1-0", "orders", 0, b"p1-0:17", acks=-1, idempotent=True, sequence_number=17, invoked_s=now)
    history.add(send)                # as it begins; an operation that is never finished stays INFO
    send.finish(now, error, offset=offset)
    check_all(history)
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from .outcomes import ALL_IN_SYNC as ALL_IN_SYNC
from .outcomes import REFUSED_FOR_WHAT_IT_IS as REFUSED_FOR_WHAT_IT_IS
from .outcomes import REFUSED_THIS_TIME as REFUSED_THIS_TIME
from .outcomes import Outcome as Outcome
from .outcomes import outcome_of as outcome_of
from .transactions import Leaderless as Leaderless
from .transactions import Marker
from .transactions import StableEnd as StableEnd
from .transactions import ToldVersion as ToldVersion
from .transactions import Transaction as Transaction
from .transactions import WholeRead as WholeRead

NO_GENERATION: Final = -1
"""The generation of a commit without a member: by an administrator, or by a consumer that assigns itself."""
NOTHING_COMMITTED: Final = -1


class Reason(StrEnum):
    """The reason for which a consumer continues elsewhere than after the last record it got."""

    START = "start"
    """The session began at a requested offset, or by the reset policy."""
    COMMITTED = "committed"
    """The session began at the committed offset."""
    SEEK = "seek"
    """The user called `seek`."""
    RESET = "reset"
    """The position was out of range, and the reset policy chose a new one."""
    TRUNCATION = "truncation"
    """The client learned that the log it had read was truncated (KIP-320)."""


class Place(NamedTuple):
    """A partition, as a key."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(slots=True)
class Send:
    """A record sent to a partition, with all its retries.

    `producer`: an incarnation; a restarted producer has another name. `value`: sent once, unless a copying pipeline
    repeats itself. `sequence_number`: rises with every record that this producer sends to the partition. `error`:
    Kafka's name of the last error. `broker`: the broker that answered. `transaction`: the name of the `Transaction`
    that contains the send. `key`: only where the topic is compacted. `keeps_order`: False if the producer may have let
    a later record overtake this record, although the send is idempotent.
    """

    actor: str
    producer: str
    topic: str
    partition: int
    value: bytes
    acks: int
    idempotent: bool
    sequence_number: int
    invoked_s: float
    completed_s: float | None = None
    outcome: Outcome = Outcome.INFO
    offset: int | None = None
    error: str | None = None
    broker: int | None = None
    transaction: str | None = None
    key: bytes | None = None
    keeps_order: bool = True

    def finish(
        self,
        at_s: float,
        error: str | None = None,
        *,
        offset: int | None = None,
        broker: int | None = None,
        tried_before: bool = False,
    ) -> None:
        """Note the answer. An offset below 0 means that the client did not learn it."""
        self.completed_s, self.error, self.broker = at_s, error, broker
        self.outcome = outcome_of(error, self.acks, self.idempotent, tried_before=tried_before)
        self.offset = offset if offset is not None and offset >= 0 else None


@dataclass(slots=True)
class Poll:
    """A record that a consumer got.

    `session`: one assignment of the partition to the consumer; within a session offsets rise, and every jump is a
    Position. `leader_epoch`: the epoch of the record's batch, -1 if the client does not report it. `committed`: the
    consumer is read-committed. `transaction`: the name of a transaction that began before this read and ends after it,
    so its writes may depend on the read.
    """

    actor: str
    session: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int
    value: bytes
    at_s: float
    committed: bool = False
    transaction: str | None = None


@dataclass(slots=True)
class Position:
    """A consumer's jump to `offset` (None: not known yet) for a reason that is reported to its user."""

    actor: str
    session: str
    topic: str
    partition: int
    offset: int | None
    reason: Reason
    at_s: float


@dataclass(slots=True)
class Commit:
    """An offset committed for a group.

    `own_epoch`: `generation` is the member's own epoch (KIP-848), not the group's generation; members then have
    different epochs at the same time. `retried`: the commit may have been sent several times, and an unanswered attempt
    may take effect later, even again. `transaction`: the transaction that contains the commit, which is requested and
    answered with the transaction's end.
    """

    group: str
    member: str
    generation: int
    topic: str
    partition: int
    offset: int
    invoked_s: float
    completed_s: float | None = None
    outcome: Outcome = Outcome.INFO
    error: str | None = None
    own_epoch: bool = False
    retried: bool = False
    transaction: str | None = None

    def finish(self, at_s: float, error: str | None = None, *, tried_before: bool = False) -> None:
        """Note the answer."""
        self.completed_s, self.error, self.retried = at_s, error, tried_before
        self.outcome = outcome_of(error, tried_before=tried_before)


@dataclass(slots=True)
class Fetched:
    """A committed offset that a group fetched; NOTHING_COMMITTED for none.

    Recorded only when the request was answered.
    """

    group: str
    topic: str
    partition: int
    offset: int
    invoked_s: float
    completed_s: float


@dataclass(slots=True)
class Owned:
    """A member's start as owner of a partition.

    `generation`: the group's generation, or the member's epoch at which it got the partition.
    """

    group: str
    generation: int
    member: str
    topic: str
    partition: int
    from_s: float


@dataclass(slots=True)
class Released:
    """A member's return of a partition."""

    group: str
    generation: int
    member: str
    topic: str
    partition: int
    at_s: float


@dataclass(slots=True)
class Watermark:
    """The offsets in an answer to a fetch.

    `leader_epoch`: the epoch in the request; `broker`: the broker that answered.
    """

    observer: str
    topic: str
    partition: int
    leader_epoch: int
    high_watermark: int
    log_start: int
    at_s: float
    broker: int | None = None


@dataclass(slots=True)
class FinalRead:
    """All records of a partition after all faults, read from the earliest offset.

    `end`: the high watermark that the reader had to reach, None if unknown. `reached`: the reader's final position, if
    it reports one; the position may be past transaction markers. The last read of a partition counts.
    """

    topic: str
    partition: int
    records: list[tuple[int, bytes]]
    log_start: int = 0
    end: int | None = None
    at_s: float = 0.0
    reached: int | None = None


@dataclass(slots=True)
class CommittedRead(FinalRead):
    """All records of a partition that a read-committed consumer gets; `end`: the last stable offset that it had to
    reach.
    """


@dataclass(slots=True)
class Dump:
    """A replica's log as it stands on its disk: (offset, leader epoch, CRC or another digest) for every batch, or
    for every record, and its markers of transactions. The last one of each broker counts."""

    broker: int
    topic: str
    partition: int
    log_start: int
    high_watermark: int
    entries: list[tuple[int, int, int]]
    at_s: float = 0.0
    markers: list[Marker] = field(default_factory=list)


@dataclass(slots=True)
class Lossy:
    """A declared, documented loss: an unclean election, or a power failure on all replicas when flushing is left to the
    system.

    Records sent or seen at `from_offset` or above until `until_s` may be gone or replaced; lower offsets are safe.
    `until_s`: the time after which no message from before the loss can still arrive; None: the end of the history.
    `topic` None: every topic; `partition` None: all partitions of the topic. `leader_epoch`: the epoch that begins with
    the loss; None: unknown. `undecided`: (producer id, first offset) of transactions that lost their marker, and
    perhaps no records.
    """

    reason: str
    at_s: float
    until_s: float | None = None
    topic: str | None = None
    partition: int | None = None
    from_offset: int = 0
    leader_epoch: int | None = None
    undecided: list[tuple[int, int]] = field(default_factory=list)


@dataclass(slots=True)
class Deleted:
    """A request to delete the records below an offset, or such a deletion by a replica itself.

    From now on these records may be hidden. They may also reappear with another leader, or after brokers died before
    they stored the deletion.
    """

    topic: str
    partition: int
    before_offset: int
    at_s: float


@dataclass(slots=True)
class BegunAnew:
    """A leader that had begun empty at an offset.

    It does not know producers that wrote only below the offset, as in Kafka.
    """

    topic: str
    partition: int
    offset: int
    at_s: float


@dataclass(slots=True)
class AppendFailed:
    """An append that the broker's disk refused; the log was offline until `until_s` (None: the end of the history)."""

    broker: int
    topic: str
    partition: int
    at_s: float
    until_s: float | None = None


@dataclass(slots=True)
class Probe:
    """A request made to be refused (a gap in the sequence, an old epoch, a commit of an old generation).

    It holds the names of the permitted errors, and of the actual error (None: the request was accepted).
    """

    actor: str
    what: str
    expected: list[str]
    got: str | None
    at_s: float


@dataclass(slots=True)
class ProducerIdentity:
    """The id and epoch that a producer was given; `transactional_id`: the id that the producer took over."""

    producer: str
    producer_id: int
    producer_epoch: int
    at_s: float
    transactional_id: str | None = None


@dataclass(slots=True)
class Copied:
    """Declares that a pipeline has copied a topic into another, value by value; `exactly_once`: without duplicates.

    `committed`: the pipeline and the readers of its output are read-committed.
    """

    source: str
    target: str
    exactly_once: bool
    at_s: float
    committed: bool = False


@dataclass(slots=True)
class Healed:
    """The end of all faults: from now on the cluster has to serve within `within_s`."""

    at_s: float
    within_s: float


@dataclass(slots=True)
class Hung:
    """An operation that exceeded its time limit: a call, a consumer's way to the end, or a shutdown."""

    actor: str
    what: str
    since_s: float
    at_s: float


Operation = (
    Send
    | Poll
    | Position
    | Commit
    | Fetched
    | Owned
    | Released
    | Watermark
    | FinalRead
    | CommittedRead
    | Dump
    | Lossy
    | Deleted
    | BegunAnew
    | AppendFailed
    | Probe
    | ProducerIdentity
    | Copied
    | Healed
    | Hung
    | Transaction
    | StableEnd
    | Leaderless
    | WholeRead
    | ToldVersion
)


class History:
    """Operations in the order of their addition, and grouped by kind. A history only grows."""

    def __init__(self, operations: Iterable[Operation] = ()) -> None:
        self.sends: list[Send] = []
        self.polls: list[Poll] = []
        self.positions: list[Position] = []
        self.commits: list[Commit] = []
        self.fetched: list[Fetched] = []
        self.owned: list[Owned] = []
        self.released: list[Released] = []
        self.watermarks: list[Watermark] = []
        self.final_reads: list[FinalRead] = []
        self.dumps: list[Dump] = []
        self.lossy: list[Lossy] = []
        self.deleted: list[Deleted] = []
        self.begun_anew: list[BegunAnew] = []
        self.failed_appends: list[AppendFailed] = []
        self.probes: list[Probe] = []
        self.identities: list[ProducerIdentity] = []
        self.copied: list[Copied] = []
        self.healed: list[Healed] = []
        self.hung: list[Hung] = []
        self.committed_reads: list[CommittedRead] = []
        self.transactions: list[Transaction] = []
        self.stable_ends: list[StableEnd] = []
        self.leaderless: list[Leaderless] = []
        self.whole_reads: list[WholeRead] = []
        self.told_versions: list[ToldVersion] = []
        self.consumed: list[Poll | Position] = []
        """Polls and positions in their common order."""
        self._operations: list[Operation] = []
        self._by_kind: dict[type, list[Any]] = {
            Send: self.sends,
            Poll: self.polls,
            Position: self.positions,
            Commit: self.commits,
            Fetched: self.fetched,
            Owned: self.owned,
            Released: self.released,
            Watermark: self.watermarks,
            FinalRead: self.final_reads,
            Dump: self.dumps,
            Lossy: self.lossy,
            Deleted: self.deleted,
            BegunAnew: self.begun_anew,
            AppendFailed: self.failed_appends,
            Probe: self.probes,
            ProducerIdentity: self.identities,
            Copied: self.copied,
            Healed: self.healed,
            Hung: self.hung,
            CommittedRead: self.committed_reads,
            Transaction: self.transactions,
            StableEnd: self.stable_ends,
            Leaderless: self.leaderless,
            WholeRead: self.whole_reads,
            ToldVersion: self.told_versions,
        }
        for operation in operations:
            self.add(operation)

    def __iter__(self) -> Iterator[Operation]:
        return iter(self._operations)

    def __len__(self) -> int:
        return len(self._operations)

    def add(self, operation: Operation) -> None:
        """Append an operation. Operations of one consumer session must be added in the order in which they happened."""
        self._operations.append(operation)
        self._by_kind[type(operation)].append(operation)
        if isinstance(operation, Poll | Position):
            self.consumed.append(operation)

    def counts(self) -> dict[str, int]:
        """Return the number of operations of each kind, and of sends, commits and transactions by outcome, for a
        report.
        """
        found = {kind.__name__: len(known) for kind, known in self._by_kind.items() if known}
        ended = (("Send", self.sends), ("Commit", self.commits), ("Transaction", self.transactions))
        for name, known in ended:
            for outcome in Outcome:
                number = sum(operation.outcome is outcome for operation in known)
                if number:
                    found[f"{name} {outcome.value}"] = number
        return found

    def write_to(self, path: Path) -> None:
        """Write one JSON object a line, in order."""
        with path.open("w", encoding="ascii") as file:
            for operation in self._operations:
                file.write(json.dumps(_as_json(operation), separators=(",", ":")) + "\n")

    @classmethod
    def read_from(cls, path: Path) -> Self:
        """Read a file of `write_to`. Raises ValueError, which names the line, for other content."""
        history = cls()
        with path.open(encoding="ascii") as file:
            for number, line in enumerate(file, 1):
                try:
                    history.add(_from_json(json.loads(line)))
                except (KeyError, TypeError, ValueError, AttributeError) as error:
                    raise ValueError(f"{path}, line {number}: not an operation: {error!r}") from error
        return history

    @classmethod
    def merged(cls, histories: Iterable[History]) -> Self:
        """Merge histories of several processes that share a clock, by time; each history keeps its own order."""
        timed = heapq.merge(*map(_ascending, histories), key=lambda entry: entry[0])
        return cls(operation for _, operation in timed)


def begun_s(operation: Operation) -> float:
    """Return the time at which the operation began or happened."""
    if isinstance(operation, Send | Commit | Fetched):
        return operation.invoked_s
    if isinstance(operation, Transaction):
        return operation.begun_s
    return operation.from_s if isinstance(operation, Owned | Leaderless) else operation.at_s


def _ascending(history: History) -> Iterator[tuple[float, Operation]]:
    """Yield operations with a non-decreasing time, so that merging keeps their order."""
    latest = float("-inf")
    for operation in history:
        latest = max(latest, begun_s(operation))
        yield latest, operation


_KINDS: Final = {kind.__name__: kind for kind in Operation.__args__}


def _as_json(operation: Operation) -> dict[str, object]:
    plain: dict[str, object] = {"kind": type(operation).__name__}
    for each in fields(operation):
        value = getattr(operation, each.name)
        if isinstance(value, bytes):
            value = value.decode("latin-1")
        elif isinstance(value, Outcome):
            value = value.value
        elif isinstance(operation, FinalRead) and each.name == "records":
            value = [(offset, record.decode("latin-1")) for offset, record in operation.records]
        elif isinstance(operation, WholeRead) and each.name == "records":
            value = [(*where, record.decode("latin-1")) for *where, record in operation.records]
        plain[each.name] = value
    return plain


def _from_json(plain: dict[str, Any]) -> Operation:
    kind = _KINDS[plain.pop("kind")]
    for name in ("key", "value"):
        if plain.get(name) is not None:
            plain[name] = plain[name].encode("latin-1")
    if "outcome" in plain:
        plain["outcome"] = Outcome(plain["outcome"])
    if "reason" in plain and kind is Position:
        plain["reason"] = Reason(plain["reason"])
    if kind in (FinalRead, CommittedRead):
        plain["records"] = [(offset, value.encode("latin-1")) for offset, value in plain["records"]]
    if kind is WholeRead:
        plain["records"] = [(*where, value.encode("latin-1")) for *where, value in plain["records"]]
    if kind is Dump:
        plain["entries"] = [(offset, epoch, digest) for offset, epoch, digest in plain["entries"]]
        plain["markers"] = [Marker(*marker) for marker in plain["markers"]]
    operation: Operation = kind(**plain)
    return operation
