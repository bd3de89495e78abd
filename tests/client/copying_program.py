"""A program that copies a topic exactly once until it is killed.

python copying_program.py 127.0.0.1:9092 orders copies
"""

from __future__ import annotations

import asyncio
import sys

from ottla import ConsumerRecord, ExactlyOnce, NewRecord


async def main(bootstrap: str, source: str, target: str) -> None:
    """Copy for ever; never returns."""

    async def slow(record: ConsumerRecord) -> NewRecord:
        await asyncio.sleep(0.001)
        return NewRecord(target, record.value, record.key, partition=record.partition)

    async with ExactlyOnce(
        source,
        group_id=source,
        bootstrap_servers=bootstrap,
        max_batch_records=20,
        max_batch_ms=20,
        session_timeout_ms=1_500,
        heartbeat_interval_ms=100,
        transaction_timeout_ms=3_000,
    ) as copier:
        await copier.run(slow)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
