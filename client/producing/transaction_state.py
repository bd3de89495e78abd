"""The phases of a transactional producer. Pure: the requests to the cluster are the task of `transactions`.

    phase        becomes      when
    NEW          READY        a producer id was given for the transactional id
    READY        OPEN         begin
    OPEN         COMMITTING   commit: no more records are accepted; queued records are sent, then the end is requested
    OPEN         ABORTING     abort: unacknowledged records are given up
    OPEN         FAILED       a record or a group's offsets could not be written
    COMMITTING   OPEN         the caller stopped waiting before the end was requested
    COMMITTING   FAILED       a record could not be written, or the cluster refuses the commit
    COMMITTING   READY        the cluster has committed
    FAILED       ABORTING     abort, which is the only possible step
    ABORTING     READY        the cluster has aborted
    any          DEAD         the producer is fenced, or may not continue for another reason

A producer that gets no answer remains COMMITTING or ABORTING: it may request the same end again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Final

from ...protocol.errors import ErrorCode, KafkaError
from ..failures import OutOfTurn, ProducerFenced, TransactionFailed, restated


class ProducerPhase(Enum):
    """The phase of a transactional producer; the module's docstring lists the transitions."""

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

OUT_OF_TURN: Final = {
    ProducerPhase.NEW: "is not started: start the producer first",
    ProducerPhase.READY: "is in no transaction: begin a transaction first",
    ProducerPhase.OPEN: "is in a transaction: commit or abort it first",
    ProducerPhase.COMMITTING: "is committing a transaction, and the result is not known yet: "
    "if the commit has failed, commit again to ask",
    ProducerPhase.ABORTING: "is aborting a transaction: if the abort has failed, abort again",
}
"""The state of the producer, and advice for the caller, by the phase that prevents the call."""

FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
"""Errors of a transaction's coordinator that mean that the producer was replaced."""
FATAL: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
"""Errors of a leader that aborting the transaction does not repair. INVALID_PRODUCER_EPOCH is not among them: only the
coordinator knows whether the producer is fenced (KIP-588)."""

PartitionName = tuple[str, int]
"""A topic's name and a partition's number."""


def _nothing() -> None:
    return None


class TransactionState:
    """The state of the transaction that the sender writes in."""

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.phase = ProducerPhase.NEW
        self.adds_by_writing = False
        """True if a write to a partition adds it to the transaction (KIP-890)."""
        self.error: KafkaError | None = None
        """The reason for the phase FAILED or DEAD."""
        self.wanted: dict[PartitionName, None] = {}
        """Partitions that batches wait for, and that the coordinator has yet to add."""
        self.on_wanted: Callable[[], None] = _nothing
        """A callback for new entries in `wanted`."""
        self.on_not_open: Callable[[], None] = _nothing
        """A callback for the end of the phase OPEN: no more records are accepted."""
        self.on_closed: Callable[[], None] = _nothing
        """A callback for the moment from which nothing more becomes part of the transaction."""
        self.judge_epoch: Callable[[KafkaError], Awaitable[KafkaError]] | None = None
        """A function that asks the coordinator about an epoch that a leader has refused. It returns ProducerFenced, or
        the leader's error. None for a writer that has joined, whose owner decides."""
        self.reached_cluster = False
        """True if the cluster may know of this transaction."""
        self.in_doubt = False
        """True if a leader may have appended batches that the producer has given up, so that sequences must restart."""
        self.begun = 0
        """Number of transactions that have begun."""
        self._added: set[PartitionName] = set()

    @property
    def is_open(self) -> bool:
        """True if more batches may become part of the transaction."""
        return self.phase in (ProducerPhase.OPEN, ProducerPhase.COMMITTING)

    def while_it_lasts(self) -> Callable[[], bool]:
        """Return a function that says whether the current transaction is still in progress."""
        begun = self.begun
        return lambda: (
            self.begun == begun
            and self.phase in (ProducerPhase.OPEN, ProducerPhase.COMMITTING, ProducerPhase.FAILED)
        )

    def begin(self, *, adds_by_writing: bool) -> None:
        """Begin a transaction. `adds_by_writing`: a write itself adds its partition to the transaction (KIP-890).
        Raises OutOfTurn, or the reason why the producer cannot begin one."""
        self.require(ProducerPhase.READY)
        self._become(ProducerPhase.OPEN)
        self.begun += 1
        self.adds_by_writing = adds_by_writing
        self.reached_cluster = self.in_doubt = False
        self.wanted.clear()
        self._added.clear()

    def require(self, *phases: ProducerPhase) -> None:
        """Raise the error that prevents a call if the producer is in none of these phases; see `in_the_way`."""
        if self.phase not in phases:
            raise self.in_the_way() from self.error

    def in_the_way(self) -> KafkaError:
        """Return the error of a call that the phase does not allow.

        It is the error of a dead producer, TransactionFailed, or OutOfTurn. It is a new exception each time, since an
        exception that is raised twice collects tracebacks.
        """
        if self.phase is ProducerPhase.DEAD:
            assert self.error is not None
            if isinstance(self.error, ProducerFenced):
                return ProducerFenced(self.error.message)
            return restated(self.error, self.error.message)
        if self.phase is ProducerPhase.FAILED:
            return TransactionFailed(
                f"the transaction of {self.transactional_id!r} can only be aborted: {self.error}"
            )
        return OutOfTurn(f"the producer {self.transactional_id!r} {OUT_OF_TURN[self.phase]}")

    def initialised(self) -> None:
        """Note that the producer got its producer id: the phase becomes READY."""
        self._become(ProducerPhase.READY)

    def committing(self) -> None:
        """Begin the commit: no more records are accepted."""
        self._become(ProducerPhase.COMMITTING)

    def not_committing(self) -> None:
        """Return to OPEN, since the end was not requested, unless the transaction has failed meanwhile."""
        if self.phase is ProducerPhase.COMMITTING:
            self._become(ProducerPhase.OPEN)

    def aborting(self) -> None:
        """Begin the abort: no more batches are sent."""
        self._become(ProducerPhase.ABORTING)

    def over(self) -> None:
        """Note that the cluster has ended the transaction: the phase becomes READY."""
        self._become(ProducerPhase.READY)

    def fail(self, error: KafkaError) -> None:
        """Mark the transaction as failed; it can only be aborted."""
        self.in_doubt = True
        if self.is_open:
            self._become(ProducerPhase.FAILED)
            self.error = error

    def die(self, error: KafkaError) -> None:
        """Mark the producer as dead: it is fenced, or cannot be used for another reason."""
        if self.phase is not ProducerPhase.DEAD:
            self._become(ProducerPhase.DEAD)
            self.error = self._explained(error)

    # for the sender

    def admits(self, topic: str, partition: int) -> bool:
        """Return whether a batch may be sent to this partition. If the partition must first be added to the
        transaction, it is noted in `wanted`."""
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
        """Note that a leader refused a batch for good, or that no leader accepted it in time."""
        if error.code in FATAL:
            self.die(error)
        else:
            self.fail(error)

    def record_abandoned(self, error: KafkaError) -> None:
        """Note that a record was given up. That fails the transaction unless it is being aborted."""
        if self.is_open:
            self.fail(error)

    # for who adds partitions

    def added(self, places: list[PartitionName]) -> None:
        """Note that the coordinator has added these partitions to the transaction."""
        for place in places:
            self.wanted.pop(place, None)
        self._added.update(places)

    def _become(self, phase: ProducerPhase) -> None:
        assert (self.phase, phase) in TRANSITIONS, (self.phase, phase)
        self.phase = phase
        if phase is not ProducerPhase.OPEN:
            self.on_not_open()
        if not self.is_open:
            self.on_closed()
        if phase not in (ProducerPhase.FAILED, ProducerPhase.DEAD):
            self.error = None

    def fenced(self, error: KafkaError) -> ProducerFenced:
        """Return the error of a producer that has been fenced; `error` is the answer that said so."""
        return ProducerFenced(
            f"the producer {self.transactional_id!r} was replaced by another one, or its transaction was open for "
            f"longer than its timeout ({error})"
        )

    def _explained(self, error: KafkaError) -> KafkaError:
        if isinstance(error, ProducerFenced):
            return error
        if error.code in FENCED:
            return self.fenced(error)
        if error.code is ErrorCode.INVALID_TXN_STATE:  # Kafka answers this after a timeout.
            return KafkaError(
                error.code, f"{error.message} Perhaps the transaction was open for longer than its timeout."
            )
        return error
