"""`foreachBatch(ottla_sink(...))`: a batch is written exactly once, beside whatever else is done with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .sink.options import APP_VERSION, TOPIC, TRANSACTIONAL_ID
from .streaming_query import query_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def ottla_sink(
    *, bootstrap_servers: str, topic: str | None = None, name: str | None = None, **options: str
) -> Callable[[DataFrame, int], None]:
    """A function for `foreachBatch` that writes each batch as one transaction, and once.

        query = delays.writeStream.foreachBatch(ottla_sink(topic="delays", bootstrap_servers="localhost:9092")).start()

    `topic`: where the frame has no such column. `name` tells several sinks of one query apart; each topic has its own
    unless given. `options` are those of `df.write.format("ottla")`, `kafka_linger_ms` for `kafka.linger.ms`.
    """
    given = {
        (one.replace("_", ".") if one.startswith("kafka_") else one): value for one, value in options.items()
    }
    given["kafka.bootstrap.servers"] = bootstrap_servers
    if topic is not None:
        given[TOPIC] = topic

    def write(frame: DataFrame, batch_id: int) -> None:
        from .data_source import OttlaDataSource

        query = query_of(frame).query
        frame.sparkSession.dataSource.register(OttlaDataSource)
        identity = {
            TRANSACTIONAL_ID: f"spark-{query}-{name or topic or 'rows'}",
            APP_VERSION: str(batch_id),
        }
        frame.write.format(OttlaDataSource.name()).mode("append").options(**{**identity, **given}).save()

    return write
