"""A program with a worker, which tests kill: it copies records, and notes each start and end of its handler.

Usage: python -m tests.client.working_program BOOTSTRAP_SERVERS TOPIC NOTES [transactional] [static PROTOCOL]
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

from ottla import Retry, Worker, WorkerRecord


def main() -> None:
    """Work until killed."""
    bootstrap_servers, topic, notes, *rest = sys.argv[1:]
    group: dict[str, Any] = {"session_timeout_ms": 3_000, "heartbeat_interval_ms": 100}
    if "static" in rest:
        is_classic = rest[-1] == "classic"
        group = {"session_timeout_ms": 20_000, "heartbeat_interval_ms": 100} if is_classic else {}
        group |= {"group_instance_id": "killed", "group_protocol": rest[-1]}
    worker = Worker(
        topic,
        bootstrap_servers=bootstrap_servers,
        group_id=topic,
        concurrency=8,
        retry=Retry(attempts=10, first=0.02, factor=1, most=0.02),
        dead_letter=f"{topic}.dlq",
        fetch_max_wait_ms=50,
        transactional="transactional" in rest,
        transaction_timeout_ms=5_000,
        **group,
    )
    with open(notes, "a", buffering=1) as file:

        def note(what: str, record: WorkerRecord) -> None:
            file.write(f"{what} {record.key.decode()} {int(record.value)} {time.time()}\n")

        @worker.handler
        async def handle(record: WorkerRecord) -> None:
            note("start", record)
            await asyncio.sleep(0.003)
            await record.send(f"{topic}.out", record.value, key=record.key)
            if int(record.value) % 17 == 0 and record.attempt == 1:
                note("fail", record)
                raise ConnectionError
            note("end", record)

        asyncio.run(worker.run())


if __name__ == "__main__":
    main()
