"""The transaction of a batch: it is begun, then committed, or aborted and repeated if that helps."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from ...protocol.errors import KafkaError
from ..backoff import Backoff
from ..failures import OutOfTurn
from ..producer import Producer
from ..records import ConsumerRecord
from .batch import INSIDE, ConsumedBatch
from .output import Output, cured_by_aborting
from .source import Source

logger = logging.getLogger(__name__)


class BatchTransaction:
    """The transactions of a processor's batches, one at a time."""

    def __init__(
        self,
        source: Source,
        output: Output,
        finishing: asyncio.Event,
        backoff: Backoff,
        *,
        transaction_timeout_s: float,
    ) -> None:
        """`finishing` is set once the work is to end with this batch. `backoff` has the waits between failures."""
        self.batch: ConsumedBatch | None = None
        """The batch that the program got last, until its block has ended."""
        self.under_way = False
        """True while the program is in the block of `batch`."""
        self.idle = asyncio.Event()
        """An event that is set while the program is in no block."""
        self.idle.set()
        self._source = source
        self._output = output
        self._finishing = finishing
        self._backoff = backoff
        self._transaction_timeout_s = transaction_timeout_s
        self._begun_s = 0.0
        self._was_too_slow = False
        """True if an attempt since the last commit lasted longer than a transaction may."""

    def offer(self, records: list[ConsumerRecord]) -> ConsumedBatch:
        """Return a batch of these records, for the program to work on."""
        self.batch = ConsumedBatch(self, records)
        return self.batch

    def leave(self) -> None:
        """Drop a batch whose block was never entered; its records are delivered again."""
        if not self.under_way:
            self.batch = None

    async def pause(self) -> None:
        """Wait before the next attempt. Returns at once when the work is to end."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._backoff.next_s()):
                await self._finishing.wait()

    # for the batch

    async def begin(self, batch: ConsumedBatch) -> None:
        """Begin the transaction of `batch`. Raises OutOfTurn for a batch that is over, or that another task works
        on."""
        if batch is not self.batch or self.under_way:
            raise OutOfTurn("the batch is over, or another task works on it")
        await self._output.producer.begin_transaction()
        self._begun_s = asyncio.get_running_loop().time()
        self.under_way = True
        self.idle.clear()
        self._source.begin_work()
        INSIDE.set(batch)

    async def end(self, batch: ConsumedBatch, error: BaseException | None) -> bool:
        """Commit or abort the transaction of `batch`. Returns whether the loop continues in spite of the error."""
        ours = error is None or self._output.failed
        try:
            if error is None:
                error = await self._refused(batch)
                if error is None:
                    return False
            await self._output.abort(error)
            if not ours or not isinstance(error, KafkaError):
                return False
            if not self._output.dead and (self._is_too_slow_again() or not cured_by_aborting(error)):
                raise error
        finally:
            self.batch, self.under_way = None, False
            self.idle.set()
            self._source.end_work()
            INSIDE.set(None)
        logger.warning("%d records are worked on again: %s", len(batch.records), error)
        await self.pause()
        return True

    def shorten(self, batch: ConsumedBatch, count: int) -> None:
        """Leave all but its first `count` records to the next batch. Raises OutOfTurn for a batch that is over."""
        if batch is not self.batch:
            raise OutOfTurn("the batch is over")
        kept, left = batch.records[:count], batch.records[count:]
        batch.records = kept
        self._source.put_back(left, kept)

    def producer_for(self, batch: ConsumedBatch) -> Producer:
        """Return the producer in the transaction of `batch`. Raises OutOfTurn outside of its block."""
        if batch is not self.batch or not self.under_way:
            raise OutOfTurn("records are sent inside of the batch's block: `async with batch:`")
        return self._output.producer

    # inside

    def _is_too_slow_again(self) -> bool:
        """Return whether this and the previous attempt both lasted longer than a transaction may: then the next would,
        too."""
        lasted_s = asyncio.get_running_loop().time() - self._begun_s
        again, self._was_too_slow = self._was_too_slow, lasted_s >= self._transaction_timeout_s
        return again and self._was_too_slow

    async def _refused(self, batch: ConsumedBatch) -> KafkaError | None:
        """Commit the transaction of `batch`. Returns the error if the commit fails, else None."""
        try:
            await self._commit(batch)
        except KafkaError as refused:
            return refused
        return None

    async def _commit(self, batch: ConsumedBatch) -> None:
        offsets = batch.offsets
        member = self._source.member(offsets)
        places = self._source.committable(offsets)
        await self._output.commit(places, member, lambda: not self._finishing.is_set())
        self._source.counted()
        self._backoff.reset()
        self._was_too_slow = False
        batch.committed = True
