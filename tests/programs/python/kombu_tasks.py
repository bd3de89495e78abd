"""Sends messages, or works them off. A message's number is written to a file.

python kombu_tasks.py BOOTSTRAP FILE send FIRST LAST
python kombu_tasks.py BOOTSTRAP FILE work
"""

import sys
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


def work() -> None:
    with Consumer(connection, [queue], callbacks=[note]):
        while True:
            with suppress(TimeoutError):
                connection.drain_events(timeout=2)


if what == "work":
    work()
else:
    send(*map(int, numbers))
