"""The dead letters of one share partition on their way: records stay ARCHIVING until their letters are written.

A letter and the end of its record are one transaction. While it fails, it is tried again after a pause: no record is
dropped without its letter.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from ....protocol.errors import ErrorCode, KafkaError
from ...server.handler import as_kafka_error
from ..partition import SharePartition
from ..transitions import DeadRecords, Transition
from .dependencies import CommitUnknown, LetterOffice, ShareKey, StateChange
from .group_settings import GroupSettings
from .letters import LetterBatch, LetterForm
from .source_records import read_source

if TYPE_CHECKING:
    from ...replication.replica.partition import Partition
    from .counters import ShareCounters

logger = logging.getLogger(__name__)

_BACKOFF_S: Final = 0.1
_BACKOFF_MAX_S: Final = 5.0


class LedShare(Protocol):
    """The interface of the share partition whose dead letters are written."""

    @property
    def key(self) -> ShareKey: ...
    @property
    def replica(self) -> Partition: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def state_epoch(self) -> int:
        """Epoch of the durable state."""

    @property
    def share(self) -> SharePartition | None: ...
    @property
    def failure(self) -> KafkaError | None: ...

    def written(self, transition: Transition) -> asyncio.Future[None]:
        """Write a transition as other changes; the result is set once it is durable, or has failed."""

    def letters_written(self) -> None:
        """React to a change of the window, and write its start offset."""

    def over(self, failure: KafkaError) -> None:
        """Drop the share partition. A later fetch loads it anew."""


class LetterServices(NamedTuple):
    """The services of a broker that dead letters use."""

    office: LetterOffice
    settings: Callable[[str], GroupSettings]
    """Settings of a group."""
    counters: ShareCounters
    wall_ms: Callable[[], int]


class DeadLetters:
    """The work that writes the dead letters of one share partition, while there are any."""

    def __init__(self, led: LedShare, services: LetterServices) -> None:
        self._led, self._services = led, services
        self._transactions = services.office.transactions(led.key)
        self._task: asyncio.Task[None] | None = None
        self._reason = ""
        self.waiting = 0
        """Number of records that wait for their letter, as of the last attempt."""

    @property
    def is_idle(self) -> bool:
        """True if no letter is on its way."""
        return self._task is None

    def wake(self) -> None:
        """Begin to write letters, if there are any."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(
                self._run(), name=f"dead letters of {self._led!r}"
            )
            self._task.add_done_callback(self._ended)

    def close(self) -> None:
        """Stop. An open transaction is aborted by the next leader, or by its timeout."""
        self.waiting = 0
        if self._task is not None:
            self._task.cancel()

    async def settle(self) -> None:
        """Abort the transaction of a former leader. Raises KafkaError."""
        await self._transactions.settle()

    def _ended(self, task: asyncio.Task[None]) -> None:
        if self._task is task:
            self._task = None
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("%r: its dead letters are not written", self._led, exc_info=error)

    async def _run(self) -> None:
        backoff_s = _BACKOFF_S
        while dead := self._dead():
            try:
                await self._write_some(dead)
                backoff_s, self._reason = _BACKOFF_S, ""
                continue
            except CommitUnknown as error:
                logger.warning(
                    "%r: a transaction of dead letters has an unknown outcome: %s", self._led, error
                )
                self._led.over(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self._led!r} is loaded anew"))
                return
            except Exception as error:
                self._failed(as_kafka_error(error, f"dead letters of {self._led!r}"))
            await asyncio.sleep(backoff_s)
            backoff_s = min(2 * backoff_s, _BACKOFF_MAX_S)
        # In this turn of the event loop: a share partition with letters is not idle.
        self._task = None
        if self._led.failure is None:
            self._led.letters_written()

    def _dead(self) -> Sequence[DeadRecords]:
        share = self._led.share
        if share is None or self._led.failure is not None or self._led.replica.leader is None:
            return ()
        share.archive_below(self._led.replica.log.log_start_offset)
        dead = share.dead_letters()
        self.waiting = sum(records.last + 1 - records.first for records in dead)
        return dead

    def _failed(self, error: KafkaError) -> None:
        self._services.counters.failed_letters += 1
        reason = f"{error.code.name} {error.message}"
        if reason != self._reason:
            self._reason = reason
            logger.warning("%r: %d records wait for their dead letters: %s", self._led, self.waiting, reason)

    # ------------------------------------------------------------ one transaction

    async def _write_some(self, dead: Sequence[DeadRecords]) -> None:
        led, share = self._led, self._led.share
        assert share is not None
        settings = self._services.settings(led.key.group_id)
        if not settings.letter_topic:
            spans = [(records.first, records.last) for records in dead]
            await led.written(share.dead_letter_written(spans))
            return
        topic = await self._services.office.topic(settings.letter_topic, led.key.partition)
        form = LetterForm(
            led.replica.topic, led.key, settings.copies_letters, topic.bytes_max, self._services.wall_ms()
        )
        source = await read_source(led.replica, dead[0].first, dead[-1].last)
        batch = form.batch(dead, source)
        transition = share.dead_letter_written(batch.spans)
        if not batch.letters or not transition.batches:
            await led.written(transition)
            return
        try:
            change = StateChange(led.state_epoch, led.leader_epoch, transition.batches)
            await self._transactions.commit(topic, batch.letters, change)
        except BaseException:
            if led.failure is None:
                share.roll_back(transition)
            raise
        self._written(share, transition, batch)

    def _written(self, share: SharePartition, transition: Transition, batch: LetterBatch) -> None:
        share.commit(transition)
        self._services.counters.letters += len(batch.letters)
