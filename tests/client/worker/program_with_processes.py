"""A program with a worker in transactions, whose handlers run in processes. Tests kill it.

Usage: python -m tests.client.worker.program_with_processes BOOTSTRAP_SERVERS TOPIC
"""

from __future__ import annotations

import asyncio
import sys

from ottla import Retry, Worker
from tests.client.worker.handlers_of_processes import copy


def main() -> None:
    """Work until killed."""
    bootstrap_servers, topic = sys.argv[1:]
    worker = Worker(
        topic,
        bootstrap_servers=bootstrap_servers,
        group_id=topic,
        group_instance_id="the only one",
        executor="processes",
        concurrency=2,
        retry=Retry(attempts=10, first=0.02, factor=1, most=0.02),
        fetch_max_wait_ms=50,
        transactional=True,
        transaction_timeout_ms=5_000,
    )
    worker.handler(copy)
    asyncio.run(worker.run())


if __name__ == "__main__":
    main()
