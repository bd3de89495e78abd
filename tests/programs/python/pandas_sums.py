"""Adds up the payments of each customer by pandas, for every few hundred records, exactly once.

python pandas_sums.py BOOTSTRAP
"""

import sys

import pandas
from confluent_kafka import Consumer, Producer

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
    frame = pandas.DataFrame(
        [(record.key().decode(), int(record.value())) for record in records], columns=["customer", "amount"]
    )
    producer.begin_transaction()
    for customer, amount in frame.groupby("customer")["amount"].sum().items():
        producer.produce("sums", str(amount), str(customer))
    producer.send_offsets_to_transaction(
        consumer.position(consumer.assignment()), consumer.consumer_group_metadata()
    )
    producer.commit_transaction()
