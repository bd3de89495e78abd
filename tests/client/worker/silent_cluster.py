"""Workers that are stopped while their cluster is silent, at work or before they have started."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ottla import Worker
from ottla.testing import LocalCluster


async def end_in_silence(
    cluster: LocalCluster, workers: Sequence[Worker], silence: asyncio.Event, within_s: float
) -> None:
    """Run workers until each has a record in its handler, pause the cluster, set `silence`, and stop the workers, which
    must end in time."""
    running = [asyncio.create_task(worker.run()) for worker in workers]
    try:
        async with asyncio.timeout(30):
            while not all(worker.stats().in_flight for worker in workers):
                await asyncio.sleep(0.01)
        cluster.pause(1)
        silence.set()
        await _stop(workers, running, within_s)
    finally:
        cluster.resume(1)
    assert all(worker.stats().succeeded for worker in workers)


async def end_before_the_start(cluster: LocalCluster, workers: Sequence[Worker], within_s: float) -> None:
    """Run workers while the cluster is paused, and stop them. They must end in time."""
    cluster.pause(1)
    try:
        running = [asyncio.create_task(worker.run()) for worker in workers]
        for _ in range(100):
            await asyncio.sleep(0)
        await _stop(workers, running, within_s)
    finally:
        cluster.resume(1)


async def _stop(workers: Sequence[Worker], running: Sequence[asyncio.Task[None]], within_s: float) -> None:
    """Stop workers, and wait for their ends."""
    for worker in workers:
        worker.stop()
    async with asyncio.timeout(within_s):
        await asyncio.gather(*running)
