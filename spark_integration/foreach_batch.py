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
    """Two functions write a batch of one query under the same name. What the second one writes would count as written
    before, and be left out."""


def ottla_sink(
    *, bootstrap_servers: str, topic: str | None = None, name: str | None = None, **options: str
) -> Callable[[DataFrame, int], None]:
    """A function for `foreachBatch` that writes each batch as one transaction, and once.

        query = delays.writeStream.foreachBatch(ottla_sink(topic="delays", bootstrap_servers="localhost:9092")).start()

    `topic`: where the frame has no such column. `name` tells several sinks of one query apart; each topic has its own
    unless given. `options` are those of `df.write.format("ottla")`, `kafka_linger_ms` for `kafka.linger.ms`. Call it
    once for a batch. Where two functions write a batch under one name the second one raises NameTaken.
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
    """For this batch the name is the function's, unless its write fails: then the program may try another one. Raises
    NameTaken if another function has written the same batch in the same run under the id."""
    _claim(key, claim)
    try:
        yield
    except BaseException:
        with _claiming:
            _writers.pop(key, None)
        raise


def _claim(key: tuple[str, str], claim: tuple[str, int, object]) -> None:
    with _claiming:
        before = _writers.get(key, claim)
        if before[:2] == claim[:2] and before[2] is not claim[2]:
            raise NameTaken(
                f"two functions write batch {claim[1]} under transactional id {key[1]!r}, and the rows of "
                "the second one would be left out as written: give each a name of its own, ottla_sink(..., name=...)"
            )
        _writers[key] = claim
