"""The transactional producer of a processor: open transactions are ended, and the producer is replaced if that
helps."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from ...protocol.errors import ErrorCode, KafkaError
from ..consuming.group_metadata import ConsumerGroupMetadata
from ..failures import RequestTimedOut, TransactionFailed
from ..producer import Producer
from ..producing.transaction_state import ProducerPhase
from ..records import OffsetAndMetadata, TopicPartition
from ..transactions.transactions import CLOSE_S

logger = logging.getLogger(__name__)

CURED_BY_ABORTING: Final = frozenset(
    {
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    }
)
"""Errors, besides the retriable ones, that may stop a transaction and not the next one. Either the group has given the
partitions to another member, or the producer must begin a new epoch."""


class Output:
    """A transactional producer of a processor: it writes one transaction after the other, and is replaced once it is
    dead."""

    def __init__(self, make: Callable[[], Producer], *, replaceable: bool) -> None:
        """`replaceable` is True if no other process can have the transactional id. Then a dead producer was too slow,
        or the cluster has forgotten it, and a new producer may replace it."""
        self.producer = make()
        self._make = make
        self._replaceable = replaceable
        self._replaced = False
        """True if the producer was replaced since the last commit."""

    @property
    def phase(self) -> ProducerPhase:
        """The phase of the producer's transaction, such as READY, OPEN or FAILED."""
        state = self.producer.parts.transaction
        assert state is not None  # It has a transactional id.
        return state.phase

    @property
    def failed(self) -> bool:
        """True if the open transaction can only be aborted, or not even that."""
        return self.phase in (ProducerPhase.FAILED, ProducerPhase.DEAD)

    @property
    def dead(self) -> bool:
        """True if the transactional producer can no longer be used, for example since it was fenced."""
        return self.phase is ProducerPhase.DEAD

    @property
    def is_over(self) -> bool:
        """True if the producer is dead, and no other may replace it."""
        return self.dead and (self._replaced or not self._replaceable)

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        member: ConsumerGroupMetadata,
        patient: Callable[[], bool],
    ) -> None:
        """Commit the sent records together with `offsets`.

        The commit is repeated until its result is known, while `patient` returns True. Raises KafkaError as
        `Producer.commit_transaction` does.
        """
        await self.producer.send_offsets_to_transaction(offsets, member)
        await self.commit_sent(patient)

    async def commit_sent(self, patient: Callable[[], bool]) -> None:
        """Commit what is part of the open transaction, as `commit` does."""
        while True:
            try:
                await self.producer.commit_transaction()
            except RequestTimedOut as error:
                if not patient():
                    raise
                logger.warning("whether a transaction is committed is not known yet, asking again: %s", error)
                continue
            self._replaced = False
            return

    async def abort(self, reason: BaseException) -> None:
        """Abort the open transaction. If that fails, the failure is noted in `reason`, and `settle` has to end the
        transaction."""
        if self.phase in (ProducerPhase.OPEN, ProducerPhase.FAILED, ProducerPhase.ABORTING):
            try:
                await self.producer.abort_transaction()
            except KafkaError as second:
                reason.add_note(f"The transaction could not be aborted: {second}")

    async def settle(self) -> None:
        """Finish or abort the open transaction, and replace a dead producer.

        A transaction that was being committed is finished; any other is aborted. A producer is replaced at most once
        between two commits. Raises KafkaError: RequestTimedOut if the result is not known yet.
        """
        await self._end()
        if self.dead:
            await self._replace()

    async def stop(self) -> None:
        """End the open transaction if that can be done soon, and close the producer."""
        try:
            with suppress(KafkaError, TimeoutError):  # The cluster ends the transaction sooner or later.
                async with asyncio.timeout(CLOSE_S):
                    await self._end()
        finally:
            await self.producer.stop()

    async def _end(self) -> None:
        try:
            if self.phase is ProducerPhase.COMMITTING:
                with suppress(TransactionFailed):
                    await self.producer.commit_transaction()
            if self.phase in (ProducerPhase.OPEN, ProducerPhase.FAILED, ProducerPhase.ABORTING):
                await self.producer.abort_transaction()
        except KafkaError:
            if not self.dead:
                raise

    async def _replace(self) -> None:
        if self.is_over:
            await self.producer.begin_transaction()  # This raises the reason why the producer is dead.
        logger.warning("a transactional producer that is of no more use is replaced")
        await self.producer.stop()
        successor = self._make()
        successor.parts.cluster.log_in_as(self.producer.parts.cluster)
        await successor.start()
        self.producer, self._replaced = successor, True


def cured_by_aborting(error: KafkaError) -> bool:
    """Return whether the next transaction may succeed where a transaction failed with this error."""
    reason = error.__cause__ if isinstance(error, TransactionFailed) else error
    return not isinstance(reason, KafkaError) or reason.code.retriable or reason.code in CURED_BY_ABORTING
