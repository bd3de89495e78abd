"""An auditor, which reports the counts of one client at intervals, and at the end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol
from uuid import uuid4

from ...protocol.errors import KafkaError
from ..backoff import Backoff
from .counts import Stamped
from .ledger import Ledger
from .reports import Report, ReportSource, printable
from .settings import AuditSettings

STOP_S = 10.0
"""The time for which a stopping client tries to send its last reports."""
RETRY_MS_MAX = 1_000

logger = logging.getLogger(__name__)
_LOST = "the counts of %d records are lost to the audit: the last reports to %r were not acknowledged (%s)"
Collect = Callable[[], None]


class ReportChannel(Protocol):
    """A channel through which audit reports (a client's record counts) are sent to the audit topic."""

    async def send(self, reports: Sequence[Report], delivered: Callable[[Report], None]) -> KafkaError | None:
        """Send audit reports, and call `delivered` for each that was acknowledged. Returns a failure, if a report
        failed.

        Raises KafkaError if nothing can be sent.
        """

    async def close(self) -> None:
        """Close the channel; reports under way are given up."""


class Auditor:
    """A component that counts one client's records, and sends the counts to the audit topic at intervals. A failed
    report is logged, and never disturbs the client's own work."""

    def __init__(
        self,
        channel: ReportChannel,
        settings: AuditSettings,
        client_id: str,
        *,
        collect: Collect = lambda: None,
    ) -> None:
        """Create an auditor that does not report yet.

        `collect`: called before reports are made, to count the records known by then.
        """
        self.topic = settings.topic
        """The topic of the reports."""
        self.ledger = Ledger(
            ReportSource(settings.tier, printable(client_id), uuid4().hex), settings.bucket_ms
        )
        """The counts that are not reported yet."""
        self._channel = channel
        self._interval_s = settings.interval_ms / 1000
        self._collect = collect
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._failure: KafkaError | None = None

    # for the client

    def count(self, topic: str, records: list[Stamped], *, transactional: bool = False) -> None:
        """Count records of a topic. Audit reports are not counted: the counts would cause further reports without
        end."""
        if topic != self.topic:
            self.ledger.count(topic, records, transactional=transactional)

    def start(self) -> None:
        """Begin to send the counts to the audit topic at intervals."""
        self._task = asyncio.ensure_future(self._report_regularly())

    async def finish(self) -> None:
        """Send the remaining audit reports, within STOP_S seconds, and stop."""
        self._stopping.set()
        if self._task is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_S):
                    await self._task
                    await self._report_all()

    async def close(self) -> None:
        """Stop reporting at once, and close the channel to the audit topic. A warning in the log gives the number of
        unreported records."""
        if self._task is not None:
            self._task.cancel()
        self._collect()
        if lost := self.ledger.unreported:
            self.warn_of_loss(lost, self._failure or "no answer in time")
        if undecided := self.ledger.undecided:
            logger.warning(
                "%d records of a transaction of which it is not known whether it was committed are in no audit report",
                undecided,
            )
        await self._channel.close()

    def warn_of_loss(self, records: int, reason: object) -> None:
        """Log that the counts of a number of records will not be reported."""
        logger.warning(_LOST, records, self.topic, reason)

    # inside

    async def _report_regularly(self) -> None:
        while not self._stopping.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(self._interval_s):
                    await self._stopping.wait()
            if not self._stopping.is_set():
                failure = await self._report()
                if failure is not None and self._failure is None:
                    logger.warning(
                        "audit reports to %r fail, and are sent again; %d records are counted in them: %s",
                        self.topic,
                        self.ledger.unreported,
                        failure,
                    )
                self._failure = failure

    async def _report_all(self) -> None:
        """Send audit reports until none is left, or nothing helps: counts may have waited for a report of the same
        bucket."""
        backoff = Backoff(RETRY_MS_MAX)
        left = -1
        while True:
            self._failure = await self._report()
            before, left = left, self.ledger.unreported
            if self._failure is None:
                if not left:
                    return
            elif not self._failure.code.retriable:
                if left == before:
                    return
            else:
                await asyncio.sleep(backoff.next_s())

    async def _report(self) -> KafkaError | None:
        """Send all current audit reports once; return a failure if a report failed."""
        self._collect()
        reports = self.ledger.cut()
        if not reports:
            return None
        try:
            return await self._channel.send(reports, self.ledger.delivered)
        except KafkaError as error:
            return error
