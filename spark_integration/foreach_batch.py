"""The sink `foreachBatch(ottla_sink(...))`: it writes a batch exactly once, beside other uses of the batch."""

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
"""Last batch written, by cluster and transactional id: its run, its number, and the function that wrote it."""
_claiming: Final = threading.Lock()


class NameTaken(RuntimeError):
    """An error: a batch of a query would be written a second time under the same name, by this function or another.

    The rows of the second call would be taken for rows written before, and be left out.
    """


def ottla_sink(
    *, bootstrap_servers: str, topic: str | None = None, name: str | None = None, **options: str
) -> Callable[[DataFrame, int], None]:
    """Return a function for `foreachBatch` that writes each batch in one transaction, exactly once.

        query = delays.writeStream.foreachBatch(ottla_sink(topic="delays", bootstrap_servers="localhost:9092")).start()

    `topic` is needed if the frame has no column of this name. `name` distinguishes several sinks of a query; the
    default is the topic. `options` are those of `df.write.format("ottla")`, with `kafka_linger_ms` for
    `kafka.linger.ms`.

    Call the function once for a batch. A second call under the same name raises NameTaken, even by another function. A
    batch that Spark runs again after a restart is skipped.
    """
    given = {
        (option.replace("_", ".") if option.startswith("kafka_") else option): value
        for option, value in options.items()
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
    """Reserve the name for this function and batch; release it if the write fails, so that the program may retry.

    Raises NameTaken if the same batch was already written in the same run under this id.
    """
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
