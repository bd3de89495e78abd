"""Adds up the payments of each customer by dask, for every few hundred records, exactly once.

python dask_sums.py BOOTSTRAP
"""

import sys

import dask.bag
from confluent_kafka import Consumer, Producer


def add(total, payment):
    return total + payment[1]


consumer = Consumer(
    {
        "bootstrap.servers": sys.argv[1],
        "group.id": "sums",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": 6000,  # a killed one is missed sooner
    }
)
producer = Producer({"bootstrap.servers": sys.argv[1], "transactional.id": "sums"})
producer.init_transactions()
consumer.subscribe(["payments"])
while True:
    records = [message for message in consumer.consume(500, 1) if message.error() is None]
    if not records:
        continue
    bag = dask.bag.from_sequence(
        [(record.key().decode(), int(record.value())) for record in records], npartitions=4
    )
    sums = bag.foldby(0, add, 0, combine=int.__add__, combine_initial=0)
    producer.begin_transaction()
    for customer, amount in sums.compute(scheduler="threads"):
        producer.produce("sums", str(amount), customer)
    producer.send_offsets_to_transaction(
        consumer.position(consumer.assignment()), consumer.consumer_group_metadata()
    )
    producer.commit_transaction()
