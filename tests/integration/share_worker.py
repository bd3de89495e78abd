"""A worker that takes tasks of a share group, and writes an output for each.

    python -m tests.integration.share_worker BOOTSTRAP NAME KIND GROUP TASKS OUTPUTS

It runs until it is killed. KIND is "consumer" for a program with an `ottla.ShareConsumer` and a producer, "worker" for
an `ottla.Worker`, and "plain" for a Worker without transactions.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Sequence

from ottla import (
    KafkaError,
    LostLock,
    Producer,
    ShareConsumer,
    ShareTask,
    TransactionFailed,
    Worker,
    WorkerRecord,
)

logger = logging.getLogger(__name__)

TASKS_AT_ONCE = 40
TIMEOUT_MS = 10_000


async def work_off(producer: Producer, tasks: Sequence[ShareTask], outputs: str) -> None:
    """Work off tasks in one transaction."""
    async with producer.transaction() as transaction:
        for task in tasks:
            await producer.send(outputs, task.value)
        transaction.acknowledge(*tasks)


async def consume(bootstrap: str, name: str, group: str, tasks: str, outputs: str) -> None:
    """Work off tasks with a ShareConsumer, until an error that ends it. Raises KafkaError."""
    async with (
        Producer(
            bootstrap_servers=bootstrap, transactional_id=name, transaction_timeout_ms=TIMEOUT_MS
        ) as producer,
        ShareConsumer(tasks, group_id=group, bootstrap_servers=bootstrap) as queue,
    ):
        while True:
            taken = await queue.getmany(timeout_ms=1_000, max_records=TASKS_AT_ONCE)
            try:
                await work_off(producer, taken, outputs)
            except (TransactionFailed, LostLock) as error:  # The group delivers the tasks again.
                logger.warning("goes on after %r, %r", error, error.__cause__)


async def handle(bootstrap: str, kind: str, group: str, tasks: str, outputs: str) -> None:
    """Work off tasks with a Worker, until an error that ends it. Raises KafkaError."""
    worker = Worker(
        tasks, group_id=group, source="share", transactional=kind == "worker", bootstrap_servers=bootstrap
    )

    @worker.handler
    async def work(record: WorkerRecord) -> None:
        await record.send(outputs, record.value)

    await worker.run()


async def run(bootstrap: str, name: str, kind: str, *where: str) -> None:
    """Work off tasks until killed."""
    while True:
        try:
            if kind == "consumer":
                await consume(bootstrap, name, *where)
            else:
                await handle(bootstrap, kind, *where)
        except KafkaError as error:
            logger.warning("begins again after %r", error)
            await asyncio.sleep(0.1)


if __name__ == "__main__":
    logging.basicConfig(format="%(asctime)s %(name)s: %(message)s")
    asyncio.run(run(*sys.argv[1:]))
