"""Sends messages, or works them off. A message's number is written to a file.

python kombu_tasks.py BOOTSTRAP FILE send FIRST LAST
python kombu_tasks.py BOOTSTRAP FILE work
python kombu_tasks.py BOOTSTRAP FILE work-slowly
"""

import os
import sys
import time
from contextlib import suppress

from kombu import Connection, Consumer, Message, Producer, Queue

bootstrap, file, what, *numbers = sys.argv[1:]
queue = Queue("tasks", routing_key="tasks")
connection = Connection(
    f"confluentkafka://{bootstrap.split(',')[0]}",
    transport_options={
        "num_partitions": 3,
        "replication_factor": 3,
        "wait_time_seconds": 1,
        "kafka_common_config": {"bootstrap.servers": bootstrap},
        "kafka_consumer_config": {"session.timeout.ms": 6000},  # a killed one is missed sooner
    },
)


def note(body: int, message: Message) -> None:
    with open(file, "a") as done:
        done.write(f"{body}\n")
    message.ack()


def send(first: int, last: int) -> None:
    producer = Producer(connection)
    for number in range(first, last + 1):
        producer.publish(number, routing_key="tasks", declare=[queue])


def note_slowly(body: int, message: Message) -> None:
    """Note the task slowly, so that librdkafka's thread finishes its work meanwhile, and not between two messages."""
    for thread in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{thread}/comm") as name:
            if name.read().startswith("rdk:main"):
                os.sched_setscheduler(int(thread), os.SCHED_IDLE, os.sched_param(0))
    time.sleep(3)
    note(body, message)


def work(callback=note) -> None:
    with Consumer(connection, [queue], callbacks=[callback]):
        while True:
            with suppress(TimeoutError):
                connection.drain_events(timeout=2)


if what == "work":
    work()
elif what == "work-slowly":
    os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])  # its threads have one processor for all of them
    work(note_slowly)
else:
    send(*map(int, numbers))
