"""The tasks that the program has and has not acknowledged: their acknowledgements, their blocks, and their end."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from ...protocol.messages.share_fetch import AcknowledgeType
from ..failures import ClientClosed, LostLock
from ..lifecycle import Lifecycle
from .enlisted import EnlistingTransaction
from .fetcher import ShareFetcher
from .leader import ShareLeader
from .locks import HeldRecord
from .tasks import Acknowledgement

if TYPE_CHECKING:
    from ..tracing.spans import Handling

logger = logging.getLogger(__name__)


class OutstandingTasks:
    """The owner of the tasks of one consumer."""

    def __init__(
        self, fetcher: ShareFetcher, life: Lifecycle, group_id: str, handling: Handling | None
    ) -> None:
        self.handling = handling
        """The maker of the spans of tasks' blocks; None without traces."""
        self.loop: asyncio.AbstractEventLoop | None = None
        """The loop of the consumer; None before its start."""
        self._fetcher = fetcher
        self._life = life
        self._group_id = group_id
        self._blocks: set[HeldRecord] = set()
        """The records of tasks whose blocks are open."""
        self._block_ended = asyncio.Event()

    def acknowledge(self, held: HeldRecord, kind: AcknowledgeType, delay_ms: int = 0) -> Acknowledgement:
        """Send the acknowledgement of a task, on whose methods programs call it. Raises LostLock, RuntimeError and
        ClientClosed; VersionUnsupported if the broker keeps no delays."""
        self._life.check_here(or_stopping=True)
        _check_unsettled(held)
        return self._send(held, kind, delay_ms)

    def check_held(self, held: HeldRecord) -> None:
        """Check that a transaction may acknowledge a task. Raises LostLock, RuntimeError and ClientClosed."""
        self._life.check_here(or_stopping=True)
        _check_unsettled(held)
        held.check_lock()

    def acknowledge_in(
        self, transaction: EnlistingTransaction, held: HeldRecord, kind: AcknowledgeType
    ) -> Acknowledgement:
        """Send the acknowledgement of a task as a part of a transaction. Raises LostLock and VersionUnsupported."""
        leader = self._leader_of(held)
        answer = leader.acknowledge_in(transaction, held, kind)
        transaction.joined_by(leader, partial(self._withdraw, leader, transaction))
        self._fetcher.done(held)
        self._fetcher.wake()
        return answer

    def begin_block(self, held: HeldRecord) -> None:
        """Note that a task's block begins. Raises RuntimeError for a task that was acknowledged, LostLock, and
        ClientClosed for a task that the consumer released when it stopped."""
        self._life.check_here(or_stopping=True)
        if held.is_settled and self._life.stopping:
            raise ClientClosed("the share consumer was stopped, and has released the task")
        _check_unsettled(held)
        if held.is_lost:
            held.is_settled = True
            self._fetcher.done(held)
            held.check_lock()
        self._blocks.add(held)

    def end_block(self, held: HeldRecord) -> None:
        """Note that a task's block has ended."""
        self._blocks.discard(held)
        self._fetcher.done(held)
        self._block_ended.set()

    def forget(self, held: HeldRecord) -> None:
        """Release a task that the program has dropped without an acknowledgement. Any thread may call it."""
        if self.loop is not None:
            with suppress(RuntimeError):  # The loop is closed.
                self.loop.call_soon_threadsafe(self._release_dropped, held)

    # the end

    async def blocks_end(self, drain_s: float) -> None:
        """Wait for the ends of the open blocks, for up to `drain_s` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(drain_s):
                while self._blocks:
                    self._block_ended.clear()
                    await self._block_ended.wait()

    def release_all(self) -> None:
        """Release the tasks that the program has not acknowledged."""
        left = list(self._fetcher.out)
        for held in left:
            with suppress(LostLock):
                self._send(held, AcknowledgeType.RELEASE)
        if left:
            logger.warning(
                "share group %r: released %s tasks at the end of the consumer", self._group_id, len(left)
            )

    def _send(self, held: HeldRecord, kind: AcknowledgeType, delay_ms: int = 0) -> Acknowledgement:
        leader = self._leader_of(held)
        if delay_ms:
            leader.check_delays()
        try:
            return leader.acknowledge(held, kind, delay_ms)
        finally:
            if kind is not AcknowledgeType.RENEW:
                held.is_settled = True
                self._fetcher.done(held)
            self._fetcher.wake()

    def _leader_of(self, held: HeldRecord) -> ShareLeader:
        leader = self._fetcher.out.get(held)
        if leader is None:
            raise LostLock(f"the lock of the record at offset {held.first} is lost: {held.reason}")
        return leader

    def _withdraw(self, leader: ShareLeader, transaction: EnlistingTransaction) -> None:
        leader.withdraw(transaction)
        self._fetcher.wake()

    def _release_dropped(self, held: HeldRecord) -> None:
        if held.is_settled or held not in self._fetcher.out:
            return
        with suppress(LostLock):
            self._send(held, AcknowledgeType.RELEASE)
            logger.warning(
                "share group %r: the program dropped a task without an acknowledgement: partition %s, offset %s; it is "
                "released",
                self._group_id,
                held.place.partition,
                held.first,
            )


def _check_unsettled(held: HeldRecord) -> None:
    if held.is_settled:
        raise RuntimeError(f"the task at offset {held.first} was acknowledged before")
