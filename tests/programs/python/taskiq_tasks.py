"""Sends tasks, or runs them. A task writes its number to a file.

python taskiq_tasks.py BOOTSTRAP FILE send FIRST LAST
python taskiq_tasks.py BOOTSTRAP FILE work
"""

import asyncio
import sys

from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.partitioner import DefaultPartitioner
from kafka.admin import NewTopic
from taskiq.api import run_receiver_task
from taskiq_aio_kafka import AioKafkaBroker

bootstrap, file, what, *numbers = sys.argv[1:]
broker = AioKafkaBroker(bootstrap.split(","), kafka_topic=NewTopic("tasks", 3, 3))
broker.configure_producer(acks="all", enable_idempotence=True, partitioner=DefaultPartitioner())
broker.configure_consumer(
    group_id="workers",
    partition_assignment_strategy=(RoundRobinPartitionAssignor,),
    auto_offset_reset="earliest",
    session_timeout_ms=6000,  # a killed one is missed sooner
    heartbeat_interval_ms=1000,
)


@broker.task
async def note(number: int) -> None:
    with open(file, "a") as done:  # noqa: ASYNC230 - a line
        done.write(f"{number}\n")


async def send(first: int, last: int) -> None:
    await broker.startup()
    for number in range(first, last + 1):
        await note.kiq(number)
    await broker.shutdown()


async def work() -> None:
    broker.is_worker_process = True
    await run_receiver_task(broker, run_startup=True)


asyncio.run(work() if what == "work" else send(*map(int, numbers)))
