"""The part of a worker in a share group that makes results count: records that handlers sent, before or together with
the acceptance of their tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Protocol

from ..exactly_once.batch import NewRecord
from ..producer import Producer
from ..sharing.tasks import ShareTask
from .settling import CLOSE_S, send_results


class ShareSettlement(Protocol):
    """A way to make results count."""

    @property
    def producer(self) -> Producer:
        """The producer of the results."""

    async def start(self) -> None:
        """Reach the cluster. Raises KafkaError."""

    def background(self) -> Sequence[Coroutine[None, None, None]]:
        """Return the work that goes on until it is cancelled. An error ends the worker."""

    async def settle(self, task: ShareTask, results: Sequence[NewRecord]) -> None:
        """Make the results of a task count. Afterwards the worker accepts the task, unless a transaction has
        acknowledged it. Raises KafkaError, and CancelledError if the results do not count."""

    def flush(self) -> None:
        """Make the results settled before count soon, without waiting for further results."""

    async def stop(self) -> None:
        """Close, within a few seconds."""


class ResultsFirst:
    """Settlement without transactions: all replicas have the results before the worker accepts their task."""

    def __init__(self, producer: Producer) -> None:
        self.producer = producer
        """The producer of the results."""

    async def start(self) -> None:
        """Reach the cluster. Raises KafkaError."""
        await self.producer.start()

    def background(self) -> Sequence[Coroutine[None, None, None]]:
        """Return no work."""
        return ()

    async def settle(self, task: ShareTask, results: Sequence[NewRecord]) -> None:
        """Send the results of a task, and wait until all replicas have them. Raises KafkaError."""
        await send_results(self.producer, results)

    def flush(self) -> None:
        """Do nothing: results are sent at once."""

    async def stop(self) -> None:
        """Close the producer. Records that the cluster has not taken by then are dropped soon."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await self.producer.stop()
