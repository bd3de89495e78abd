"""A producer's spool: rates of records of 100 bytes into its files, through them and out, and the CPU for each.

    python -m benchmarks.spool [--rounds N] [--record FILE]

One broker, one partition. The kinds take turns; the table has medians over the rounds.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile

import ottla

from .rates import COUNT, TOPIC, VALUE, Readings, main, timed

NOWHERE = "127.0.0.1:1"
INTO, THROUGH, OUT = "into the files, no cluster", "through the files", "out of the files"


async def one_round(bootstrap: str, readings: Readings) -> None:
    """Fill a spool without a cluster, empty it, then send as a producer without a spool does."""
    with tempfile.TemporaryDirectory() as folder:
        async with ottla.Producer(bootstrap_servers=NOWHERE, spool_dir=folder) as producer:
            with timed(readings[INTO]):
                for _ in range(COUNT):
                    await producer.send(TOPIC, VALUE)
        with timed(readings[OUT]):
            async with ottla.Producer(bootstrap_servers=bootstrap, spool_dir=folder) as producer:
                await producer.flush()
        async with ottla.Producer(bootstrap_servers=bootstrap, spool_dir=folder) as producer:
            await producer.send_and_wait(TOPIC, VALUE)
            with timed(readings[THROUGH]):
                for _ in range(COUNT):
                    await producer.send(TOPIC, VALUE)
                await producer.flush()


if __name__ == "__main__":
    sys.exit(main(__doc__, (INTO, THROUGH, OUT), lambda *given: asyncio.run(one_round(*given)), rounds=3))
