"""The sinks of a pipeline: a micro-batch's results go once to a topic and once to a table."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from ..foreach_batch import ottla_sink
from ..outside.parquet_layout import column
from ..outside.parquet_sink import parquet_sink
from .settings import PipelineSettings, TopicSink, WrongPipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Sink = Callable[["DataFrame", int], None]


class Closed(RuntimeError):
    """An error that stops the query: the pipeline ends, and writes no further micro-batch."""


class Sinks:
    """A function for `foreachBatch` that writes to several sinks. Each sink skips batch numbers that it has written."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = sinks
        self._writing = threading.Lock()
        self._closed = False

    def __call__(self, frame: DataFrame, number: int) -> None:
        """Write a batch to every sink that has not written it yet. Raises Closed, and the sinks' errors."""
        with self._writing:
            if self._closed:
                raise Closed("the pipeline ends")
            frame.persist()  # computed once for all sinks
            try:
                for write in self._sinks:
                    write(frame, number)
            finally:
                frame.unpersist()

    def close(self) -> None:
        """Wait until every sink has the current batch, and write no further batch."""
        with self._writing:
            self._closed = True

    @property
    def closed(self) -> bool:
        """True after `close` was called."""
        return self._closed


def sinks_of(settings: PipelineSettings, columns: Sequence[str]) -> Sinks:
    """Return the sinks of a pipeline whose results have these columns. Raises WrongPipeline."""
    sinks: list[Sink] = []
    if settings.topic is not None:
        _check(settings.topic.key, columns, "topic.key")
        sinks.append(_to_topic(settings.topic, settings.bootstrap))
    if (table := settings.parquet) is not None:
        _check(table.partition_by, columns, "parquet.partition_by")
        sinks.append(parquet_sink(table.path, partition_by=table.partition_by, compression=table.compression))
    return Sinks(sinks)


def _to_topic(topic: TopicSink, bootstrap: str) -> Sink:
    write = ottla_sink(bootstrap_servers=bootstrap, topic=topic.name, **topic.options)

    def to_topic(frame: DataFrame, number: int) -> None:
        key = (
            F.concat_ws("|", *(column(name).cast("string") for name in topic.key))
            if topic.key
            else F.lit(None)
        )
        value = F.to_json(F.struct(*map(column, frame.columns)))
        write(frame.select(key.cast("string").alias("key"), value.alias("value")), number)

    return to_topic


def _check(names: Sequence[str], columns: Sequence[str], key: str) -> None:
    for name in names:
        if name not in columns:
            raise WrongPipeline(f"{key}: the steps give no column {name!r}; they give {', '.join(columns)}")
