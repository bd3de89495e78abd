"""Records for producers of confluent-kafka, whose queue may be full."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Producer

ROOM_WAIT_S = 0.05


def queue_record(producer: Producer, topic: str, value: bytes, **options: Any) -> None:
    """Queue a record, and wait while the client's queue is full. `options` are further arguments of `produce`."""
    while True:
        try:
            producer.produce(topic, value, **options)
            return
        except BufferError:
            producer.poll(ROOM_WAIT_S)
