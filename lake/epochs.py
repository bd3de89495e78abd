"""The generations of workers: each takes the transactional id of a table over, as a producer does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..client.producer import Producer
from .iceberg.tables import Epoch

TRANSACTIONAL_ID: Final = "lake-{}"


async def new_epoch(connection: Mapping[str, Any], table: str, cluster: str) -> Epoch:
    """Take a table over from earlier workers of a cluster, and return the new generation. Raises KafkaError.

    `connection`: options of Ottla's clients that reach the cluster with the id `cluster`.
    """
    producer = Producer(**connection, transactional_id=TRANSACTIONAL_ID.format(table))
    async with producer:
        return Epoch(producer.identity.id, producer.identity.epoch, cluster)
