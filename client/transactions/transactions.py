"""The transactions of one producer: what is asked of the cluster so that records, and offsets of groups, count as one.

A producer speaks transaction version 2 (KIP-890) where the cluster has it: a partition is added by being written to,
and each transaction has an epoch of its own, so that nothing late can enter the next one. Elsewhere it adds partitions
first, and begins a new epoch after an abort that may have left something under way. Questions are asked one after the
other over one connection: the cluster must never see them in another order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
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
)
from ..lifecycle import Lifecycle
from ..producing.accumulator import ProducerIdentity
from ..producing.sender import Sender
from ..producing.transaction_state import FENCED, ProducerPhase, TransactionState
from ..records import OffsetAndMetadata, TopicPartition
from .additions import FATAL, addition, addition_failure, offset_commit, offsets_failure
from .questions import Failure, ProducerQuestions, failure_of

LANE: Final = "transactions"
VERSION_FEATURE: Final = "transaction.version"
CLOSE_S: Final = 5.0
"""So long a producer that is closed waits for the abort of what it left open. The cluster aborts it sooner or later."""

_LAST_FOR_ONE_PRODUCER: Final = 3
_FIRST_OFFSETS_THAT_ADD: Final = 5
_FIRST_THAT_BUMPS: Final = 5
_WITHOUT_TWO_PHASES: Final = 5

ResponseT = TypeVar("ResponseT", bound=Message)


class CommitResult(NamedTuple):
    """How a commit went. `was_committed`: a transaction with the same application version, or a later one, had been
    committed before, so this one was aborted instead. `commit_index`: its place in the order of all decisions of the
    cluster, -1 where it does not tell.
    """

    was_committed: bool = False
    commit_index: int = -1


@dataclass(frozen=True, slots=True)
class TransactionOptions:
    """See Producer for the meaning of each."""

    timeout_ms: int
    patience_s: float
    retry_backoff_max_ms: int


@dataclass(frozen=True, slots=True)
class Shared:
    """What the cluster was told of a transaction that others may join."""

    number: int
    token: str
    app_version: int | None


class Transactions:
    """Of one transactional id. Every call raises KafkaError: OutOfTurn where it does not fit, TransactionFailed where
    only an abort is left, ProducerFenced where nothing is, RequestTimedOut where the same call may be repeated.
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
        """Of the last commit under the transactional id that named one."""
        self.shared: Shared | None = None
        """Of the transaction that is open, if others may join it."""
        self.on_ended: Callable[[bool], None] | None = None
        """Told of the end of each transaction: whether what it has written counts."""
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
        self._adding = False
        self._asking = 0  # how many questions are under way that the transaction depends on
        self._ending = False
        self._end_answered = False
        self._judging: tuple[int, asyncio.Task[KafkaError | None]] | None = None
        """For which transaction the coordinator is asked whether the producer is fenced."""
        state.on_wanted = self._begin_adding
        state.judge_epoch = self._judge_epoch

    @property
    def phase(self) -> ProducerPhase:
        """Where the producer stands."""
        return self._state.phase

    @property
    def identity(self) -> ProducerIdentity:
        """As whom the cluster knows the producer now."""
        return self._identity

    @property
    def begun(self) -> int:
        """How many transactions have begun."""
        return self._state.begun

    async def initialise(self) -> None:
        """Get a producer id; whoever had the transactional id before is fenced, what it left open is aborted."""
        self._took_identity(await self._init(ProducerIdentity(-1, -1)))
        self._state.initialised()

    def begin(self) -> None:
        """Whatever is sent from now on is part of one transaction."""
        self._life.check_here()
        self._state.begin(adds_by_writing=self._coordinator.features.get(VERSION_FEATURE, 0) >= 2)
        self.shared = None
        self._end_answered = False

    async def begin_shared(self, app_version: int | None) -> Shared:
        """`begin`, so that others can join. Raises VersionUnsupported where the cluster has no such transactions."""
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
                self._coordinator, request, lambda one: failure_of(one.error_code, one.error_message), "begin"
            )
        self.shared = Shared(answer.number, answer.token, app_version)
        return self.shared

    async def commit(self, writers: Iterable[tuple[int, int]] = ()) -> CommitResult:
        """Send what is there, then let all of it count, and what the `writers` (producer id, epoch) have written. When
        this returns, readers of committed records see it.
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
            except asyncio.CancelledError:
                self._state.not_committing()
                raise
            self._state.require(ProducerPhase.COMMITTING)
            return await self._end(True, chosen)

    async def abort(self) -> None:
        """Let nothing of it count. Records that are not acknowledged fail with TransactionAborted."""
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
        """Let the group's `offsets` (next to read) count with the transaction."""
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
                    self._coordinator, add, lambda one: failure_of(one.error_code), "adding a group"
                )
            await self._in_transaction(
                self._group_coordinator(group.group_id),
                offset_commit(self._state.transactional_id, self._identity, offsets, group),
                offsets_failure,
                f"offsets of group {group.group_id!r}",
                _FIRST_OFFSETS_THAT_ADD if self._state.adds_by_writing else _FIRST_OFFSETS_THAT_ADD - 1,
            )

    async def close(self) -> None:
        """Abort what is open, if that can be done soon."""
        if self._state.phase in (ProducerPhase.OPEN, ProducerPhase.FAILED) and not self._ending:
            with suppress(KafkaError, TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await self.abort()
        self._questions.close()

    @contextmanager
    def _before_the_end(self) -> Iterator[None]:
        """Something that has to be answered before a commit."""
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
            raise  # how it ended is not known: the caller may ask again
        except KafkaError as error:
            # INVALID_TXN_STATE: Kafka has aborted it after its timeout; or a chosen writer is not known.
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
            # Perhaps no partition was added before that failed. The next epoch settles it in any case.
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
            lambda one: failure_of(one.error_code),
            "commit" if committed else "abort",
            at_most=_FIRST_THAT_BUMPS if self._state.adds_by_writing else _FIRST_THAT_BUMPS - 1,
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
            lambda one: failure_of(one.error_code, one.error_message),
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

        A transaction that met such a refusal can only be aborted, so the abort is asked for at once. The one that the
        caller asks for later is answered as this one was.
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
        useful = self._state.while_it_lasts()  # the next transaction must not meet this abort
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
        """A producer id, or the next epoch of the `former` one."""
        request = InitProducerIdRequest(
            transactional_id=self._state.transactional_id,
            transaction_timeout_ms=self._options.timeout_ms,
            producer_id=former.id,
            producer_epoch=former.epoch,
        )
        answer: InitProducerIdResponse = await self._questions.insist(
            self._coordinator,
            request,
            lambda one: failure_of(one.error_code),
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
        """Until nothing is wanted any more. What fails fails the transaction."""
        try:
            await asyncio.sleep(0)  # those wanted in the same turn of the loop go together
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
        """The answer, or the transaction has failed; or it is over, and what is asked no more of its concern."""
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
            # Whoever commits all the same would not know what is part of it.
            if useful():
                self._failed(RequestTimedOut(f"{what}: the caller gave up waiting"), fatal=False)
            raise

    def _ends_it(self, error: KafkaError) -> bool:
        """Whether aborting does not help. It does after the cluster has aborted the transaction by itself, as after its
        timeout. A group's coordinator says INVALID_PRODUCER_EPOCH then (Kafka), and one of transactions
        INVALID_PRODUCER_ID_MAPPING, where the next epoch does not come with the end (Ottla)."""
        sign = (
            ErrorCode.INVALID_PRODUCER_EPOCH
            if self._state.adds_by_writing
            else ErrorCode.INVALID_PRODUCER_ID_MAPPING
        )
        return error.code in FATAL and error.code is not sign

    def _failed(self, error: KafkaError, *, fatal: bool) -> KafkaError:
        """The transaction, or the producer, cannot go on. What the caller is to be told."""
        if fatal:
            self._state.die(error)
        else:
            self._state.fail(error)
        told = self._state.in_the_way()
        is_fenced = isinstance(told, ProducerFenced)
        self._sender.abandon(told if is_fenced else TransactionAborted(f"the transaction failed: {error}"))
        return told
