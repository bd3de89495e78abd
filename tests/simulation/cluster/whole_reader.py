"""A reader of whole transactions, in the order of the cluster's decisions."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress

from ottla.client.consumer import Consumer
from ottla.protocol.errors import KafkaError
from tests.histories.operations import Position, Reason, WholeRead
from tests.simulation.cluster.workload import POLL_MS, REQUEST_TIMEOUT_MS, Workload, started


async def read_whole(workload: Workload, actor: str) -> None:
    """Read from the log starts, and start over now and then."""
    chance, round_ = workload.chance(), 0
    partly = workload.lossy | workload.trimmed | workload.compacted
    places = [partition for partition in workload.partitions if partition.topic not in partly]
    while not workload.over:
        round_ += 1
        session = f"{actor}/{round_}"
        consumer = await started(
            lambda: Consumer(
                bootstrap_servers=workload.cluster.bootstrap,
                auto_offset_reset="earliest",
                request_timeout_ms=REQUEST_TIMEOUT_MS,
                fetch_max_wait_ms=POLL_MS,
                fetch_max_bytes=chance.choice((500, 5000, 1 << 20)),
            )
        )
        for topic, index in places:
            workload.history.add(Position(actor, session, topic, index, None, Reason.START, workload.now()))
        consumer.assign(places)
        with suppress(KafkaError, TimeoutError):
            async with asyncio.timeout(chance.uniform(0.5, 3.0)):
                await _note(workload, actor, session, consumer)
        await consumer.stop()
        await workload.idle(chance.uniform(0, 1.0))


async def _note(workload: Workload, actor: str, session: str, consumer: Consumer) -> None:
    async with aclosing(consumer.transactions()) as found:
        async for transaction in found:
            if transaction.commit_index is None:
                continue
            records = [
                (*place, record.offset, record.value or b"")
                for place, some in transaction.records.items()
                for record in some
            ]
            workload.history.add(WholeRead(actor, session, transaction.commit_index, records, workload.now()))
