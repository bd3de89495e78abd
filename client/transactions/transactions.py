"""The transactions of a producer: the requests that make records, and offsets of groups, part of one transaction.

A producer uses transaction version 2 (KIP-890) if the cluster supports it. Then a write to a partition adds it, and
each transaction has a separate epoch, so that no late request can enter the next transaction. Otherwise the producer
adds partitions first, and begins a new epoch after an abort that may have left requests in flight. Requests are sent
one after the other over one connection: the cluster must never see them in another order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, TypeVar

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.producers import InitProducerIdRequest, InitProducerIdResponse
from ...protocol.messages.shared_transactions import (
    BeginTransactionRequest,
    CommittedWriter,
    CommitTransactionRequest,
    CommitTransactionResponse,
)
from ...protocol.messages.transactions import (
    FIRST_THAT_BUMPS,
    AddOffsetsToTxnRequest,
    EndTxnRequest,
    EndTxnResponse,
)
from ...protocol.wire.schema import Message, Request
from ..connections.cluster import Cluster
from ..connections.coordinator import OF_GROUP, OF_TRANSACTION, Coordinator
from ..consuming.group_metadata import ConsumerGroupMetadata
from ..failures import (
    ClientClosed,
    OutOfTurn,
    ProducerFenced,
    RequestTimedOut,
    TransactionAborted,
    TransactionFailed,
    VersionUnsupported,
)
from ..lifecycle import Lifecycle
from ..producing.accumulator import ProducerIdentity
from ..producing.sender import Sender
from ..producing.transaction_state import FENCED, ProducerPhase, TransactionState
from ..records import OffsetAndMetadata, TopicPartition
from ..sharing.tasks import ShareTask
from .additions import FATAL, addition, addition_failure, offset_commit, offsets_failure
from .questions import Failure, ProducerQuestions, failure_of
from .share_acknowledgements import TaskAcknowledgements

LANE: Final = "transactions"
VERSION_FEATURE: Final = "transaction.version"
CLOSE_S: Final = 5.0
"""Maximum time in seconds for which a closing producer waits for the abort of its transaction. The cluster aborts it
sooner or later."""

_LAST_FOR_ONE_PRODUCER: Final = 3
_FIRST_OFFSETS_THAT_ADD: Final = 5
_WITHOUT_TWO_PHASES: Final = 5

ResponseT = TypeVar("ResponseT", bound=Message)


class CommitResult(NamedTuple):
    """The result of a commit.

    `was_committed` is True if a transaction with the same application version, or a later one, was committed before, so
    this one was aborted instead. `commit_index` is the index in the order of all decisions of the cluster, -1 if the
    cluster does not report it.
    """

    was_committed: bool = False
    commit_index: int = -1


@dataclass(frozen=True, slots=True)
class TransactionOptions:
    """Options of transactions; see Producer for their meaning."""

    timeout_ms: int
    patience_s: float
    retry_backoff_max_ms: int


@dataclass(frozen=True, slots=True)
class Shared:
    """A transaction that other processes may join, as the cluster registered it."""

    number: int
    token: str
    app_version: int | None


class Transactions:
    """The transactions of a transactional id.

    Every call raises KafkaError: OutOfTurn if the phase does not allow it, TransactionFailed if only an abort is
    possible, ProducerFenced if nothing is possible, RequestTimedOut if the same call may be repeated.
    """

    def __init__(
        self,
        cluster: Cluster,
        options: TransactionOptions,
        state: TransactionState,
        sender: Sender,
        life: Lifecycle,
    ) -> None:
        self.last_app_version: int | None = None
        """Application version of the last commit under the transactional id that had one."""
        self.shared: Shared | None = None
        """The shared form of the open transaction, if other processes may join it."""
        self.on_ended: Callable[[bool], None] | None = None
        """A callback for the end of each transaction, with True if it was committed."""
        self._cluster = cluster
        self._options = options
        self._state = state
        self._sender = sender
        self._life = life
        self._coordinator = Coordinator(cluster, state.transactional_id, OF_TRANSACTION, LANE)
        self._identity = ProducerIdentity(-1, -1)
        self._groups: dict[str, Coordinator] = {}
        self._questions = ProducerQuestions(
            f"transactional id {state.transactional_id!r}", options.patience_s, options.retry_backoff_max_ms
        )
        self._acknowledgements = TaskAcknowledgements(
            state.transactional_id, self._questions, self._acknowledgement_refused
        )
        self._adding = False
        self._asking = 0  # number of requests in flight that the transaction depends on
        self._ending = False
        self._end_answered = False
        self._judging: tuple[int, asyncio.Task[KafkaError | None]] | None = None
        """Number of a transaction, and the task that asks the coordinator whether its producer is fenced."""
        state.on_wanted = self._begin_adding
        state.judge_epoch = self._judge_epoch
        state.on_closed = self._acknowledgements.close

    @property
    def phase(self) -> ProducerPhase:
        """The phase of the producer, such as READY, OPEN or DEAD."""
        return self._state.phase

    @property
    def identity(self) -> ProducerIdentity:
        """The producer id and epoch now."""
        return self._identity

    @property
    def begun(self) -> int:
        """The number of transactions that this producer has begun."""
        return self._state.begun

    async def initialise(self) -> None:
        """Get a producer id. A former producer with the transactional id is fenced, and its open transaction is
        aborted."""
        self._took_identity(await self._init(ProducerIdentity(-1, -1)))
        self._state.initialised()

    def begin(self) -> None:
        """Begin a transaction: all records sent from now on are part of it."""
        self._life.check_here()
        self._state.begin(adds_by_writing=self._coordinator.features.get(VERSION_FEATURE, 0) >= 2)
        self.shared = None
        self._end_answered = False

    async def begin_shared(self, app_version: int | None) -> Shared:
        """Begin a transaction that other processes can join. Raises VersionUnsupported if the cluster has no such
        transactions, and ValueError for a negative version."""
        self._life.check_here()
        self._state.require(ProducerPhase.READY)
        if app_version is not None and app_version < 0:
            raise ValueError(f"an application version is 0 or more, not {app_version}")
        (await self._coordinator.connection()).version_for(BeginTransactionRequest)
        self.begin()
        self._state.adds_by_writing = self._state.reached_cluster = True
        request = BeginTransactionRequest(
            transactional_id=self._state.transactional_id,
            producer_id=self._identity.id,
            producer_epoch=self._identity.epoch,
        )
        with self._before_the_end():
            answer = await self._in_transaction(
                self._coordinator,
                request,
                lambda answer: failure_of(answer.error_code, answer.error_message),
                "begin",
            )
        self.shared = Shared(answer.number, answer.token, app_version)
        return self.shared

    async def commit(self, writers: Iterable[tuple[int, int]] = ()) -> CommitResult:
        """Send the queued records, then commit all records of this producer and of the `writers` (producer id, epoch).

        When this returns, readers of committed records see them.
        """
        self._life.check_loop()
        self._state.require(ProducerPhase.OPEN, ProducerPhase.COMMITTING)
        chosen = list(writers)
        if self._asking:
            raise OutOfTurn(
                "offsets are being sent, or others are being let in: wait for that before you commit"
            )
        if chosen and self.shared is None:
            raise OutOfTurn("nobody can have joined this transaction: it was not begun with `begin`")
        with self._one_end():
            if self._state.phase is ProducerPhase.OPEN:
                self._state.committing()
            try:
                await self._sender.flush()
                await self._acknowledgements.answered()
            except asyncio.CancelledError:
                self._state.not_committing()
                raise
            self._state.require(ProducerPhase.COMMITTING)
            return await self._end(True, chosen)

    async def abort(self) -> None:
        """Abort the transaction. Unacknowledged records fail with TransactionAborted."""
        self._life.check_loop()
        self._state.require(ProducerPhase.OPEN, ProducerPhase.FAILED, ProducerPhase.ABORTING)
        with self._one_end():
            if self._state.phase is not ProducerPhase.ABORTING:
                self._state.aborting()
            if self._sender.abandon(TransactionAborted("the transaction was aborted")):
                self._state.in_doubt = True
            await self._end(False, [])

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> None:
        """Commit a group's `offsets` (next to read) with the transaction."""
        self._life.check_loop()
        self._state.require(ProducerPhase.OPEN)
        if not offsets:
            return
        self._state.reached_cluster = True
        with self._before_the_end():
            if not self._state.adds_by_writing:
                add = AddOffsetsToTxnRequest(
                    transactional_id=self._state.transactional_id,
                    producer_id=self._identity.id,
                    producer_epoch=self._identity.epoch,
                    group_id=group.group_id,
                )
                await self._in_transaction(
                    self._coordinator, add, lambda answer: failure_of(answer.error_code), "adding a group"
                )
            await self._in_transaction(
                self._group_coordinator(group.group_id),
                offset_commit(self._state.transactional_id, self._identity, offsets, group),
                partial(offsets_failure, group.group_id),
                f"offsets of group {group.group_id!r}",
                _FIRST_OFFSETS_THAT_ADD if self._state.adds_by_writing else _FIRST_OFFSETS_THAT_ADD - 1,
            )

    def acknowledge(self, tasks: Iterable[ShareTask], kind: str) -> None:
        """Acknowledge tasks of share groups with the transaction. A refusal fails the transaction.

        Raises VersionUnsupported below transaction version 2, and the errors of `TaskAcknowledgements.add`.
        """
        self._life.check_here()
        self._state.require(ProducerPhase.OPEN)
        if not self._state.adds_by_writing:
            raise VersionUnsupported(
                f"records cannot be acknowledged in transactions: the cluster has {VERSION_FEATURE} below 2"
            )
        self._acknowledgements.add(tasks, kind, self._identity, self._state.while_it_lasts())
        self._state.reached_cluster = True

    async def _acknowledgement_refused(self, error: KafkaError, useful: Callable[[], bool]) -> None:
        if useful() and error.code in FENCED:
            error = await self._judge_epoch(error)
        if (
            useful()
        ):  # A consumer may lack a right that the producer has, so no other error ends the producer.
            self._failed(error, fatal=isinstance(error, ProducerFenced))

    async def close(self) -> None:
        """Abort an open transaction if that can be done soon."""
        if self._state.phase in (ProducerPhase.OPEN, ProducerPhase.FAILED) and not self._ending:
            with suppress(KafkaError, TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await self.abort()
        self._acknowledgements.close()
        self._questions.close()

    @contextmanager
    def _before_the_end(self) -> Iterator[None]:
        """Return a context manager for a request that must be answered before a commit."""
        self._asking += 1
        try:
            yield
        finally:
            self._asking -= 1

    # ------------------------------------------------------------ the end

    @contextmanager
    def _one_end(self) -> Iterator[None]:
        if self._ending:
            raise OutOfTurn("the transaction is being ended by another task")
        self._ending = True
        try:
            yield
        finally:
            self._ending = False

    async def _end(self, committed: bool, writers: list[tuple[int, int]]) -> CommitResult:
        result = CommitResult()
        try:
            if self._state.reached_cluster and not self._end_answered:
                result = await self._decide(committed, writers)
                self._end_answered = True
            if self._state.in_doubt and not self._state.adds_by_writing:
                self._took_identity(await self._init(self._identity))
        except (ClientClosed, RequestTimedOut):
            raise  # The outcome is unknown: the caller may ask again.
        except KafkaError as error:
            # INVALID_TXN_STATE: Kafka has aborted the transaction after its timeout, or a chosen writer is unknown.
            abortable = not self._ends_it(error) or (
                error.code is ErrorCode.INVALID_TXN_STATE and self._state.adds_by_writing
            )
            raise self._failed(error, fatal=not (committed and abortable)) from error
        self._state.over()
        if self.on_ended is not None:
            self.on_ended(committed and not result.was_committed)
        return result

    async def _decide(self, committed: bool, writers: list[tuple[int, int]]) -> CommitResult:
        if self.shared is not None:
            return await self._end_shared(self.shared, committed, writers)
        await self._end_plain(committed)
        return CommitResult()

    async def _end_plain(self, committed: bool) -> None:
        bumps = self._state.adds_by_writing
        try:
            answer = await self._ask_for_end(committed)
        except KafkaError as error:
            # Perhaps no partition was added before the failure. The next epoch ends the transaction in any case.
            if error.code != ErrorCode.INVALID_TXN_STATE or committed or bumps:
                raise
            self._state.in_doubt = True
            return
        if bumps and answer.producer_id >= 0:
            self._took_identity(ProducerIdentity(answer.producer_id, answer.producer_epoch))

    async def _ask_for_end(
        self, committed: bool, useful: Callable[[], bool] = lambda: True
    ) -> EndTxnResponse:
        request = EndTxnRequest(
            transactional_id=self._state.transactional_id,
            producer_id=self._identity.id,
            producer_epoch=self._identity.epoch,
            committed=committed,
        )
        return await self._questions.insist(
            self._coordinator,
            request,
            lambda answer: failure_of(answer.error_code),
            "commit" if committed else "abort",
            at_most=FIRST_THAT_BUMPS if self._state.adds_by_writing else FIRST_THAT_BUMPS - 1,
            useful=useful,
        )

    async def _ask_for_shared_end(
        self,
        shared: Shared,
        committed: bool,
        writers: list[tuple[int, int]],
        useful: Callable[[], bool] = lambda: True,
    ) -> CommitTransactionResponse:
        request = CommitTransactionRequest(
            transactional_id=self._state.transactional_id,
            producer_id=self._identity.id,
            producer_epoch=self._identity.epoch,
            committed=committed,
            number=shared.number,
            writers=[CommittedWriter(producer_id=number, producer_epoch=epoch) for number, epoch in writers],
            app_version=-1 if shared.app_version is None else shared.app_version,
        )
        return await self._questions.insist(
            self._coordinator,
            request,
            lambda answer: failure_of(answer.error_code, answer.error_message),
            "commit" if committed else "abort",
            useful=useful,
        )

    async def _end_shared(
        self, shared: Shared, committed: bool, writers: list[tuple[int, int]]
    ) -> CommitResult:
        answer = await self._ask_for_shared_end(shared, committed, writers)
        self._took_identity(ProducerIdentity(answer.producer_id, answer.producer_epoch))
        if committed and shared.app_version is not None and not answer.was_committed:
            self.last_app_version = shared.app_version
        return CommitResult(answer.was_committed, answer.commit_index)

    # ------------------------------------------------------------ a refused epoch

    async def _judge_epoch(self, error: KafkaError) -> KafkaError:
        """Return ProducerFenced if the coordinator says so, and else `error`, a refusal of the producer's epoch.

        A transaction with such a refusal can only be aborted, so the abort is requested at once. The abort that the
        caller requests later gets the same answer.
        """
        if self._judging is None or self._judging[0] != self._state.begun:
            self._judging = self._state.begun, self._questions.spawn(self._fence())
        try:
            return await asyncio.shield(self._judging[1]) or error
        except asyncio.CancelledError:
            if self._judging[1].cancelled():
                return error
            raise

    async def _fence(self) -> KafkaError | None:
        """Return ProducerFenced if another producer has the transactional id; None if not, or without an answer."""
        useful = self._state.while_it_lasts()  # This abort must not reach the next transaction.
        try:
            if self.shared is not None:
                await self._ask_for_shared_end(self.shared, False, [], useful)
            else:
                await self._ask_for_end(False, useful)
        except KafkaError as refused:
            return self._state.fenced(refused) if refused.code in FENCED else None
        return None

    # ------------------------------------------------------------ identity

    async def _init(self, former: ProducerIdentity) -> ProducerIdentity:
        """Return a producer id, or the next epoch of `former`."""
        request = InitProducerIdRequest(
            transactional_id=self._state.transactional_id,
            transaction_timeout_ms=self._options.timeout_ms,
            producer_id=former.id,
            producer_epoch=former.epoch,
        )
        answer: InitProducerIdResponse = await self._questions.insist(
            self._coordinator,
            request,
            lambda answer: failure_of(answer.error_code),
            "producer id",
            at_most=_WITHOUT_TWO_PHASES,
        )
        self.last_app_version = answer.app_version if answer.app_version >= 0 else None
        return ProducerIdentity(answer.producer_id, answer.producer_epoch)

    def _took_identity(self, identity: ProducerIdentity) -> None:
        self._identity = identity
        self._sender.use_identity(identity)

    # ------------------------------------------------------------ partitions, where they are to be added first

    def _begin_adding(self) -> None:
        if not self._adding:
            self._adding = True
            self._questions.spawn(self._add_wanted())

    async def _add_wanted(self) -> None:
        """Add partitions to the transaction until no queued batch wants another. An error fails the transaction."""
        try:
            await asyncio.sleep(0)  # Partitions wanted in the same turn of the loop are added together.
            while self._state.wanted and self._state.is_open:
                places = list(self._state.wanted)
                self._state.reached_cluster = True
                request = addition(self._state.transactional_id, self._identity, places)
                with suppress(TransactionAborted, TransactionFailed):
                    await self._in_transaction(
                        self._coordinator,
                        request,
                        addition_failure,
                        "adding partitions",
                        _LAST_FOR_ONE_PRODUCER,
                    )
                    self._state.added(places)
                    self._sender.wake()
        finally:
            self._adding = False

    def _group_coordinator(self, group_id: str) -> Coordinator:
        if group_id not in self._groups:
            self._groups[group_id] = Coordinator(self._cluster, group_id, OF_GROUP, LANE)
        return self._groups[group_id]

    # ------------------------------------------------------------ asking

    async def _in_transaction(
        self,
        whom: Coordinator,
        request: Request[ResponseT],
        failure: Failure[ResponseT],
        what: str,
        at_most: int | None = None,
    ) -> ResponseT:
        """Return the answer to a request. A failure fails the transaction, unless it is over; then TransactionAborted
        is raised."""
        useful = self._state.while_it_lasts()
        try:
            return await self._questions.insist(whom, request, failure, what, at_most=at_most, useful=useful)
        except (ClientClosed, TransactionAborted):
            raise
        except KafkaError as error:
            if not useful():
                raise TransactionAborted(f"the transaction is over ({error})") from error
            if error.code is ErrorCode.INVALID_PRODUCER_EPOCH and not self._ends_it(error):
                error = await self._judge_epoch(error)
            raise self._failed(error, fatal=self._ends_it(error)) from error
        except asyncio.CancelledError:
            # A commit after this would not know which records and offsets are part of it.
            if useful():
                self._failed(RequestTimedOut(f"{what}: the caller gave up waiting"), fatal=False)
            raise

    def _ends_it(self, error: KafkaError) -> bool:
        """Return whether an error is fatal, so that an abort does not help.

        An abort helps after the cluster itself has aborted the transaction, for example after its timeout. Then a
        group's coordinator answers INVALID_PRODUCER_EPOCH (Kafka), and a transaction coordinator answers
        INVALID_PRODUCER_ID_MAPPING if the next epoch does not come with the end (Ottla).
        """
        sign = (
            ErrorCode.INVALID_PRODUCER_EPOCH
            if self._state.adds_by_writing
            else ErrorCode.INVALID_PRODUCER_ID_MAPPING
        )
        return error.code in FATAL and error.code is not sign

    def _failed(self, error: KafkaError, *, fatal: bool) -> KafkaError:
        """Fail the transaction, or the producer if the error is fatal. Returns the error for the caller."""
        if fatal:
            self._state.die(error)
        else:
            self._state.fail(error)
        raised = self._state.in_the_way()
        is_fenced = isinstance(raised, ProducerFenced)
        self._sender.abandon(raised if is_fenced else TransactionAborted(f"the transaction failed: {error}"))
        return raised
