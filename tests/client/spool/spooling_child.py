"""A process that sends numbered records through a spool, until it is killed.

It tells each number on its output once `send` has returned: from then on the record is to arrive.
"""

from __future__ import annotations

import asyncio
import sys

from ottla import Producer


async def main(bootstrap: str, folder: str, topic: str, first: int) -> None:
    async with Producer(bootstrap_servers=bootstrap, spool_dir=folder, retry_backoff_max_ms=50) as producer:
        for number in range(first, first + 1_000_000):
            await producer.send(topic, b"%d" % number, key=b"%d" % (number % 7))
            sys.stdout.write(f"{number}\n")
            if number % 50 == 0:
                sys.stdout.flush()
                await asyncio.sleep(0.001)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
