"""Reports of replicas' states to the quorum, for example that a disk is full. Each report is repeated until the quorum
has it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Generic, TypeVar

from ....protocol.errors import ErrorCode, KafkaError
from ..fetch_values import PartitionKey

logger = logging.getLogger(__name__)

_Said = TypeVar("_Said")

_REPORTED_AT_ONCE_MAX = 1000
_RETRY_S = 0.5


class Reports(Generic[_Said]):
    """A queue of reports about replicas' states: for each replica the newest one that the quorum does not have yet.
    Owned by the event loop.

    One command is under way at a time, so that reports about one replica arrive in order.
    """

    def __init__(
        self, send: Callable[[Sequence[PartitionKey], _Said], Awaitable[None]], subject: str
    ) -> None:
        """`send` raises KafkaError if the quorum did not take the reports. `subject` names the replicas in log
        lines."""
        self._send = send
        self._subject = subject
        self._due: dict[PartitionKey, _Said] = {}
        self._reporting: asyncio.Task[None] | None = None

    def add(self, keys: Iterable[PartitionKey], said: _Said) -> None:
        """Queue the state `said` as the report about these replicas. It replaces an earlier report that has not
        arrived.
        """
        for key in keys:
            self._due.pop(key, None)
            self._due[key] = said
        if self._due and (self._reporting is None or self._reporting.done()):
            self._reporting = asyncio.create_task(self._report_all(), name=f"reports of {self._subject}")

    def discard(self, key: PartitionKey) -> None:
        """Drop the queued report about this replica."""
        self._due.pop(key, None)

    async def arrived(self) -> None:
        """Wait until the quorum has all queued reports."""
        while self._reporting is not None and not self._reporting.done():
            await asyncio.wait([self._reporting])

    async def _report_all(self) -> None:
        while self._due:
            said = next(iter(self._due.values()))
            batch = self._next_batch(said)
            try:
                await self._send(batch, said)
            except KafkaError as error:
                if error.code is ErrorCode.STALE_BROKER_EPOCH:
                    return  # Another process has this broker's id, and this process ends.
                logger.warning("the quorum does not know yet of %d %s: %s", len(batch), self._subject, error)
                await asyncio.sleep(_RETRY_S)
                continue
            for key in batch:
                if self._due.get(key) is said:
                    del self._due[key]

    def _next_batch(self, said: _Said) -> list[PartitionKey]:
        batch: list[PartitionKey] = []
        for key, due in self._due.items():
            if due is not said or len(batch) == _REPORTED_AT_ONCE_MAX:
                break
            batch.append(key)
        return batch

    def close(self) -> None:
        """Stop reporting."""
        if self._reporting is not None:
            self._reporting.cancel()
