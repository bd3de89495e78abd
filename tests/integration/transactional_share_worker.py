"""A worker that takes tasks of a share group, and writes an output for each in the transaction that acknowledges it.

    python -m tests.integration.transactional_share_worker BOOTSTRAP NAME GROUP TASKS OUTPUTS

The worker runs until it is killed.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

from ottla import KafkaError, LostLock, Producer, ShareConsumer, ShareTask, TransactionFailed

TASKS_AT_ONCE = 40


async def work_off(producer: Producer, tasks: Sequence[ShareTask], outputs: str) -> None:
    """Work off tasks in one transaction."""
    async with producer.transaction() as transaction:
        for task in tasks:
            await producer.send(outputs, task.value)
        transaction.acknowledge(*tasks)


async def run(bootstrap: str, name: str, group: str, tasks: str, outputs: str) -> None:
    """Work off tasks until killed."""
    while True:
        try:
            async with (
                Producer(bootstrap_servers=bootstrap, transactional_id=name) as producer,
                ShareConsumer(tasks, group_id=group, bootstrap_servers=bootstrap) as queue,
            ):
                while True:
                    taken = await queue.getmany(timeout_ms=1_000, max_records=TASKS_AT_ONCE)
                    try:
                        await work_off(producer, taken, outputs)
                    except (TransactionFailed, LostLock) as error:  # The group delivers the tasks again.
                        print(f"{name} goes on after {error!r}, {error.__cause__!r}", flush=True)
        except KafkaError as error:
            print(f"{name} begins again after {error!r}", flush=True)
            await asyncio.sleep(0.1)


if __name__ == "__main__":
    asyncio.run(run(*sys.argv[1:]))
