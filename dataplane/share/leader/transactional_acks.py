"""Acknowledgements of one share partition in transactions of producers: records end with the transaction, or return.

The durable state changes as part of the transaction, and so tells afterwards whether it was committed. The leader reads
it until the transaction has ended. An acknowledgement that may not be part of the transaction waits for its end, too:
only then is it certain that it never becomes part of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from ....protocol.errors import ErrorCode, KafkaError
from ...coordinated_log.transactional_producer import TransactionalProducer
from ...server.handler import as_kafka_error
from ..acknowledgements import AcknowledgedRange
from ..partition import SharePartition
from ..states import AcknowledgeType, StateBatch
from ..transitions import Transition
from .dependencies import (
    FENCED,
    Persister,
    ShareKey,
    StoredPending,
    StoredState,
    fenced,
)
from .write_queue import Written

logger = logging.getLogger(__name__)

_POLL_S: Final = 0.02
_POLL_MAX_S: Final = 0.5

Producer = tuple[int, int]
"""Producer id and epoch, by which a share partition knows a transaction."""


class AcknowledgedShare(Protocol):
    """The interface of the share partition whose records are acknowledged in transactions."""

    @property
    def key(self) -> ShareKey: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def state_epoch(self) -> int: ...
    @property
    def share(self) -> SharePartition | None: ...
    @property
    def failure(self) -> KafkaError | None: ...

    def written(self, transition: Transition) -> asyncio.Future[None]:
        """Write a transition; the result is set once it is durable, or has failed."""

    def over(self, failure: KafkaError) -> None:
        """Drop the share partition. A later fetch loads it anew."""


class TransactionServices(NamedTuple):
    """The services of a broker that acknowledgements in transactions use."""

    persister: Persister
    has_ended: Callable[[TransactionalProducer], Awaitable[bool]]
    """Ask the quorum whether a transaction is over, with all its markers. False if that is not known."""


@dataclass(slots=True)
class _Open:
    """A transaction that has acknowledgements here, and has not ended as far as this broker knows."""

    writer: TransactionalProducer | None
    """The producer; None if a former leader wrote the acknowledgements."""
    writes: int = 0
    """Number of writes on their way."""
    count: int = 0
    """Number of acknowledgements so far. A client that keeps its epoch may be in its next transaction."""
    is_doubtful: bool = False
    """True if an acknowledgement may become part of the transaction although its write has failed."""


class TransactionalAcks:
    """The acknowledgements of one share partition whose transactions have not ended."""

    def __init__(self, led: AcknowledgedShare, services: TransactionServices) -> None:
        self._led, self._services = led, services
        self._open: dict[Producer, _Open] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._settling: asyncio.Task[None] | None = None

    @property
    def is_idle(self) -> bool:
        """True if no transaction has acknowledgements here."""
        return not self._open

    def close(self) -> None:
        """Stop. The next leader learns of the transactions from the durable state."""
        self._open.clear()
        for task in self._tasks:
            task.cancel()

    def restore(self, pending: Sequence[StoredPending]) -> None:
        """Hold the records that a former leader's members have acknowledged in transactions which have not ended."""
        share = self._led.share
        assert share is not None
        for state in pending:
            producer = state.producer_id, state.producer_epoch
            share.restore_pending(producer, state.batches)
            self._open.setdefault(producer, _Open(None))
        self._settle_later()

    def acknowledge(
        self,
        member_id: str,
        ranges: Sequence[AcknowledgedRange],
        writer: TransactionalProducer,
        done: Written,
    ) -> None:
        """Acknowledge records in a transaction. `done` is called once the acknowledgements are part of it.

        After an error they may be part of it, or not. Raises KafkaError, and changes nothing.
        """
        share = self._led.share
        assert share is not None
        if share.limits.has_dead_letters and any(AcknowledgeType.REJECT in each.types for each in ranges):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Acknowledgement: group {self._led.key.group_id} has a dead letter topic, so type 3 (REJECT) is not "
                "possible in a transaction.",
            )
        producer = writer.producer_id, writer.producer_epoch
        batches = share.acknowledge_pending(producer, member_id, ranges)
        if not batches:
            done(None)
            return
        transaction = self._open.setdefault(producer, _Open(writer))
        transaction.writer = writer
        transaction.writes += 1
        transaction.count += 1
        self._start(self._write(transaction, writer, batches, done))
        self._settle_later()

    def _start(self, work: Awaitable[None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _write(
        self, transaction: _Open, writer: TransactionalProducer, batches: Sequence[StateBatch], done: Written
    ) -> None:
        led, outcome = self._led, None
        try:
            await self._services.persister.write_in_transaction(
                *led.key,
                state_epoch=led.state_epoch,
                leader_epoch=led.leader_epoch,
                batches=batches,
                writer=writer,
            )
        except asyncio.CancelledError:
            done(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{led!r} is not led here any more"))
            raise
        except Exception as error:
            outcome = as_kafka_error(error, f"an acknowledgement of {led!r} in a transaction")
            transaction.is_doubtful = True
        finally:
            transaction.writes -= 1
        if outcome is not None and outcome.code in FENCED:
            outcome = fenced(outcome)
            led.over(outcome)
        done(outcome)

    # ------------------------------------------------------------ ends of transactions

    def _settle_later(self) -> None:
        if self._open and self._settling is None:
            self._settling = self._start(self._settle_all())
            self._settling.add_done_callback(self._settled)

    def _settled(self, _task: asyncio.Task[None]) -> None:
        self._settling = None
        if self._led.failure is None:
            self._settle_later()

    async def _settle_all(self) -> None:
        """Read the durable state until all transactions have ended."""
        delay_s = _POLL_S
        while self._open and self._led.failure is None:
            await asyncio.sleep(delay_s)
            delay_s = min(1.5 * delay_s, _POLL_MAX_S)
            due = {
                producer: transaction.count
                for producer, transaction in tuple(self._open.items())
                if await self._may_end(transaction)
            }
            if not due:
                continue
            try:
                state = await self._services.persister.read(*self._led.key, self._led.leader_epoch)
            except KafkaError as error:
                if error.code in FENCED:
                    self._led.over(fenced(error))
                continue
            if await self._settle_some(due, state):
                delay_s = _POLL_S

    async def _may_end(self, transaction: _Open) -> bool:
        """Return whether the durable state tells, once it is read, how the transaction has ended or that it has not."""
        if transaction.writes:
            return False
        if transaction.is_doubtful and transaction.writer is not None:
            try:
                return await self._services.has_ended(transaction.writer)
            except KafkaError:
                return False
        return True

    async def _settle_some(self, due: Mapping[Producer, int], state: StoredState) -> bool:
        """Apply the ends of these transactions that are not pending in the state. Return whether there were any."""
        pending = {(each.producer_id, each.producer_epoch) for each in state.pending}
        is_any = False
        for producer, count in due.items():
            share, transaction = self._led.share, self._open.get(producer)
            if producer in pending or share is None or self._led.failure is not None:
                continue
            if transaction is None or transaction.writes or transaction.count != count:
                continue
            del self._open[producer]
            try:
                await self._led.written(share.settle(producer, state.batches))
                is_any = True
            except KafkaError as error:
                # The records are pending again.
                logger.info("%r: the end of a transaction was not written: %s", self._led, error)
                self._open.setdefault(producer, transaction)
        return is_any
