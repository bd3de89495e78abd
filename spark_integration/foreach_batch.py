"""`foreachBatch(ottla_sink(...))`: a batch is written exactly once, beside whatever else is done with it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from .sink.options import APP_VERSION, TOPIC, TRANSACTIONAL_ID
from .streaming_query import query_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_writers: Final[dict[tuple[str, str], tuple[str, int, object]]] = {}
"""By cluster and transactional id: which batch of which run was written under it last, and by which function."""
_claiming: Final = threading.Lock()


class NameTaken(RuntimeError):
    """A batch of one query was to be written a second time under the same name, by the same function or another one.
    The rows of the second call would count as written before, and be left out."""


def ottla_sink(
    *, bootstrap_servers: str, topic: str | None = None, name: str | None = None, **options: str
) -> Callable[[DataFrame, int], None]:
    """A function for `foreachBatch` that writes each batch as one transaction, and once.

        query = delays.writeStream.foreachBatch(ottla_sink(topic="delays", bootstrap_servers="localhost:9092")).start()

    `topic`: where the frame has no such column. `name` tells several sinks of one query apart; each topic has its own
    unless given. `options` are those of `df.write.format("ottla")`, `kafka_linger_ms` for `kafka.linger.ms`. Call it
    once for a batch. The second call under one name raises NameTaken, be it of this function or of another one. A batch
    that Spark plays again after a restart is skipped.
    """
    given = {
        (one.replace("_", ".") if one.startswith("kafka_") else one): value for one, value in options.items()
    }
    given["kafka.bootstrap.servers"] = bootstrap_servers
    if topic is not None:
        given[TOPIC] = topic

    writer = object()

    def write(frame: DataFrame, batch_id: int) -> None:
        from .data_source import OttlaDataSource

        query, run = query_of(frame)
        frame.sparkSession.dataSource.register(OttlaDataSource)
        identity = {
            TRANSACTIONAL_ID: f"spark-{query}-{name or topic or 'rows'}",
            APP_VERSION: str(batch_id),
        }
        known = {**identity, **given}
        with _claimed((bootstrap_servers, known[TRANSACTIONAL_ID]), (run, batch_id, writer)):
            frame.write.format(OttlaDataSource.name()).mode("append").options(**known).save()

    return write


@contextmanager
def _claimed(key: tuple[str, str], claim: tuple[str, int, object]) -> Iterator[None]:
    """Keep the name for this function and batch, unless the write fails: then the program may try again. Raise
    NameTaken if the same batch was written in the same run under the id."""
    _claim(key, claim)
    try:
        yield
    except BaseException:
        with _claiming:
            _writers.pop(key, None)
        raise


def _claim(key: tuple[str, str], claim: tuple[str, int, object]) -> None:
    with _claiming:
        before = _writers.get(key)
        if before is not None and before[:2] == claim[:2]:
            callers = "one function is called twice for" if before[2] is claim[2] else "two functions write"
            raise NameTaken(
                f"{callers} batch {claim[1]} under transactional id {key[1]!r}, and the rows of the second call would "
                "be left out as written: make a second sink with another name, ottla_sink(..., name=...)"
            )
        _writers[key] = claim
