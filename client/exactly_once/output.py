"""The transactional producer of one processor: what it leaves open is ended, and it is replaced where that helps."""

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
"""What may stop a transaction and not the next one, besides all that time cures: the group has given the partitions to
somebody else, or the producer has to begin a new epoch."""


class Output:
    """A producer in transactions, one after the other."""

    def __init__(self, make: Callable[[], Producer], *, replaceable: bool) -> None:
        """`replaceable`: nobody else can have its transactional id, so that one that is dead was too slow, or forgotten
        by the cluster, and another one may take its place."""
        self.producer = make()
        self._make = make
        self._replaceable = replaceable
        self._replaced = False
        """Since the last commit."""

    @property
    def phase(self) -> ProducerPhase:
        """Where the producer stands."""
        state = self.producer.parts.transaction
        assert state is not None  # It has a transactional id.
        return state.phase

    @property
    def failed(self) -> bool:
        """Whether what is open can only be aborted, or not even that."""
        return self.phase in (ProducerPhase.FAILED, ProducerPhase.DEAD)

    @property
    def dead(self) -> bool:
        """Whether the producer is of no more use."""
        return self.phase is ProducerPhase.DEAD

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        member: ConsumerGroupMetadata,
        patient: Callable[[], bool],
    ) -> None:
        """Commit what was sent together with `offsets`. Asks until it is known how that went, while `patient`. Raises
        KafkaError as `Producer.commit_transaction` does."""
        await self.producer.send_offsets_to_transaction(offsets, member)
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
        """Let what is open not count. What goes wrong with that is noted in the `reason`, and left to `settle`."""
        if self.phase in (ProducerPhase.OPEN, ProducerPhase.FAILED, ProducerPhase.ABORTING):
            try:
                await self.producer.abort_transaction()
            except KafkaError as second:
                reason.add_note(f"The transaction could not be aborted: {second}")

    async def settle(self) -> None:
        """Have nothing open: what was being committed is, all else is aborted, a producer that is dead is replaced,
        once between two commits. Raises KafkaError: RequestTimedOut if it is not known yet."""
        await self._end()
        if self.dead:
            await self._replace()

    async def stop(self) -> None:
        """End what is open, if that can be done soon, and close."""
        try:
            with suppress(
                KafkaError, TimeoutError
            ):  # The cluster ends sooner or later what is not ended here.
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
        if self._replaced or not self._replaceable:
            await self.producer.begin_transaction()  # which tells why it cannot
        logger.warning("a transactional producer that is of no more use is replaced")
        await self.producer.stop()
        successor = self._make()
        successor.parts.cluster.log_in_as(self.producer.parts.cluster)
        await successor.start()
        self.producer, self._replaced = successor, True


def cured_by_aborting(error: KafkaError) -> bool:
    """Whether the work may be tried again in the next transaction, which this failed in."""
    reason = error.__cause__ if isinstance(error, TransactionFailed) else error
    return not isinstance(reason, KafkaError) or reason.code.retriable or reason.code in CURED_BY_ABORTING
