"""Where a transactional producer stands. Pure: what is asked of the cluster, and when, is `transactions`' business.

    phase        becomes      when
    NEW          READY        a producer id was given for the transactional id
    READY        OPEN         begin
    OPEN         COMMITTING   commit: no more records are taken; those there are sent, then the end is asked for
    OPEN         ABORTING     abort: what was not acknowledged is given up
    OPEN         FAILED       a record or a group's offsets could not be written
    COMMITTING   OPEN         who commits gave up waiting before the end was asked for
    COMMITTING   FAILED       a record could not be written, or the cluster refuses the commit
    COMMITTING   READY        the cluster has committed
    FAILED       ABORTING     abort, which is all that can be done
    ABORTING     READY        the cluster has aborted
    any          DEAD         the producer is fenced, or may not go on for another reason

Whoever gets no answer stays COMMITTING or ABORTING: the same end may be asked for again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Final

from ...protocol.errors import ErrorCode, KafkaError
from ..failures import OutOfTurn, ProducerFenced, TransactionFailed, restated


class ProducerPhase(Enum):
    """See the table above."""

    NEW = "not started"
    READY = "in no transaction"
    OPEN = "open"
    COMMITTING = "being committed"
    ABORTING = "being aborted"
    FAILED = "failed"
    DEAD = "dead"


TRANSITIONS: Final = frozenset(
    {
        (ProducerPhase.NEW, ProducerPhase.READY),
        (ProducerPhase.READY, ProducerPhase.OPEN),
        (ProducerPhase.OPEN, ProducerPhase.COMMITTING),
        (ProducerPhase.OPEN, ProducerPhase.ABORTING),
        (ProducerPhase.OPEN, ProducerPhase.FAILED),
        (ProducerPhase.COMMITTING, ProducerPhase.OPEN),
        (ProducerPhase.COMMITTING, ProducerPhase.FAILED),
        (ProducerPhase.COMMITTING, ProducerPhase.READY),
        (ProducerPhase.FAILED, ProducerPhase.ABORTING),
        (ProducerPhase.ABORTING, ProducerPhase.READY),
        *((phase, ProducerPhase.DEAD) for phase in ProducerPhase),
    }
)

HINTS: Final = {
    ProducerPhase.NEW: "start the producer first",
    ProducerPhase.READY: "begin a transaction first",
    ProducerPhase.OPEN: "commit or abort it first",
    ProducerPhase.COMMITTING: "how that ends is not known yet; if the commit has failed, commit again to ask",
    ProducerPhase.ABORTING: "if the abort has failed, abort again",
}
"""What helps against being in a phase."""

FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
"""Answers of a transaction's coordinator to a producer that was replaced."""
FATAL: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
"""What a leader may answer to a batch that aborting the transaction does not repair. INVALID_PRODUCER_EPOCH is not
among them: only the coordinator knows whether the producer is fenced (KIP-588)."""

PartitionName = tuple[str, int]
"""Topic and partition."""


def _nothing() -> None:
    return None


class TransactionState:
    """What the sender sees of the transaction that it writes in."""

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.phase = ProducerPhase.NEW
        self.adds_by_writing = False
        """Whether a partition becomes part of the transaction by being written to (KIP-890)."""
        self.error: KafkaError | None = None
        """Why it is FAILED or DEAD."""
        self.wanted: dict[PartitionName, None] = {}
        """Partitions that something waits for, and that the coordinator has yet to add."""
        self.on_wanted: Callable[[], None] = _nothing
        """Called when `wanted` has grown."""
        self.on_not_open: Callable[[], None] = _nothing
        """Called when no more records are taken."""
        self.judge_epoch: Callable[[KafkaError], Awaitable[KafkaError]] | None = None
        """Asks the coordinator about an epoch that a leader has refused: ProducerFenced, or the leader's error. None
        for a writer that has joined, whose owner decides."""
        self.reached_cluster = False
        """Whether the cluster may know of this transaction."""
        self.in_doubt = False
        """Whether a leader may have taken what the producer has given up, so that sequences have to begin anew."""
        self.begun = 0
        """How many transactions have."""
        self._added: set[PartitionName] = set()

    @property
    def is_open(self) -> bool:
        """Whether something may still become part of it."""
        return self.phase in (ProducerPhase.OPEN, ProducerPhase.COMMITTING)

    def while_it_lasts(self) -> Callable[[], bool]:
        """Whether the transaction that is open now still is, to be asked later."""
        begun = self.begun
        return lambda: (
            self.begun == begun
            and self.phase in (ProducerPhase.OPEN, ProducerPhase.COMMITTING, ProducerPhase.FAILED)
        )

    def begin(self, *, adds_by_writing: bool) -> None:
        """The producer is to write in a transaction. Raises OutOfTurn, or why it cannot."""
        self.require(ProducerPhase.READY)
        self._become(ProducerPhase.OPEN)
        self.begun += 1
        self.adds_by_writing = adds_by_writing
        self.reached_cluster = self.in_doubt = False
        self.wanted.clear()
        self._added.clear()

    def require(self, *phases: ProducerPhase) -> None:
        """Raises what stands in the way of a call that fits `phases` alone."""
        if self.phase not in phases:
            raise self.in_the_way(*phases) from self.error

    def in_the_way(self, *phases: ProducerPhase) -> KafkaError:
        """Why a call that fits `phases` alone cannot be made now. A new exception each time: one that is raised twice
        collects tracebacks."""
        if self.phase is ProducerPhase.DEAD:
            assert self.error is not None
            if isinstance(self.error, ProducerFenced):
                return ProducerFenced(self.error.message)
            return restated(self.error, self.error.message)
        if self.phase is ProducerPhase.FAILED:
            return TransactionFailed(
                f"the transaction of {self.transactional_id!r} can only be aborted: {self.error}"
            )
        return OutOfTurn(
            f"the producer {self.transactional_id!r} is {self.phase.value}, not "
            f"{' or '.join(phase.value for phase in phases)}: {HINTS[self.phase]}"
        )

    def initialised(self) -> None:
        """The producer has a producer id."""
        self._become(ProducerPhase.READY)

    def committing(self) -> None:
        """No more records are taken."""
        self._become(ProducerPhase.COMMITTING)

    def not_committing(self) -> None:
        """The end was not asked for: it is open as before, unless it has failed meanwhile."""
        if self.phase is ProducerPhase.COMMITTING:
            self._become(ProducerPhase.OPEN)

    def aborting(self) -> None:
        """Nor are any sent."""
        self._become(ProducerPhase.ABORTING)

    def over(self) -> None:
        """It has ended."""
        self._become(ProducerPhase.READY)

    def fail(self, error: KafkaError) -> None:
        """It cannot be committed any more."""
        self.in_doubt = True
        if self.is_open:
            self._become(ProducerPhase.FAILED)
            self.error = error

    def die(self, error: KafkaError) -> None:
        """The producer cannot go on."""
        if self.phase is not ProducerPhase.DEAD:
            self._become(ProducerPhase.DEAD)
            self.error = self._explained(error)

    # for the sender

    def admits(self, topic: str, partition: int) -> bool:
        """Whether a batch may leave for this partition; if not, it will be told when it may."""
        if not self.is_open:
            return False
        place = (topic, partition)
        if self.adds_by_writing:
            self.reached_cluster = True
            return True
        if place in self._added:
            return True
        if place not in self.wanted:
            self.wanted[place] = None
            self.on_wanted()
        return False

    def record_failed(self, error: KafkaError) -> None:
        """A leader refused a batch for good, or none took it in time."""
        if error.code in FATAL:
            self.die(error)
        else:
            self.fail(error)

    def record_abandoned(self, error: KafkaError) -> None:
        """A record was given up; that fails the transaction unless it is being aborted."""
        if self.is_open:
            self.fail(error)

    # for who adds partitions

    def added(self, places: list[PartitionName]) -> None:
        """The coordinator has them."""
        for place in places:
            self.wanted.pop(place, None)
        self._added.update(places)

    def _become(self, phase: ProducerPhase) -> None:
        assert (self.phase, phase) in TRANSITIONS, (self.phase, phase)
        self.phase = phase
        if phase is not ProducerPhase.OPEN:
            self.on_not_open()
        if phase not in (ProducerPhase.FAILED, ProducerPhase.DEAD):
            self.error = None

    def fenced(self, error: KafkaError) -> ProducerFenced:
        """Return the error of a producer that has been fenced; `error` is the answer that said so."""
        return ProducerFenced(
            f"the producer {self.transactional_id!r} was replaced by another one, or its transaction was open for "
            f"longer than its timeout ({error.message})"
        )

    def _explained(self, error: KafkaError) -> KafkaError:
        if isinstance(error, ProducerFenced):
            return error
        if error.code in FENCED:
            return self.fenced(error)
        if error.code is ErrorCode.INVALID_TXN_STATE:  # what Kafka answers after a timeout
            return KafkaError(
                error.code, f"{error.message} Perhaps the transaction was open for longer than its timeout."
            )
        return error
