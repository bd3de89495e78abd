"""Sends tasks, or runs them. A task writes its number to a file.

python celery_tasks.py BOOTSTRAP FILE send FIRST LAST
python celery_tasks.py BOOTSTRAP FILE work
"""

import sys

from celery import Celery

bootstrap, file, what, *numbers = sys.argv[1:]
app = Celery("tasks", broker=f"confluentkafka://{bootstrap.split(',')[0]}")
app.conf.update(
    task_default_queue="tasks",
    worker_enable_remote_control=False,  # Kombu has no fanout by Kafka
    broker_transport_options={
        "num_partitions": 3,
        "replication_factor": 3,
        "wait_time_seconds": 1,
        "kafka_common_config": {"bootstrap.servers": bootstrap},
        "kafka_consumer_config": {"session.timeout.ms": 6000},  # a killed one is missed sooner
    },
)


@app.task
def note(number: int) -> None:
    with open(file, "a") as done:
        done.write(f"{number}\n")


def send(first: int, last: int) -> None:
    for number in range(first, last + 1):
        note.delay(number)


if what == "work":
    alone = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    app.worker_main(["worker", "--pool=solo", "--concurrency=1", "--loglevel=info", *alone])
else:
    send(*map(int, numbers))
