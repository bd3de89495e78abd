"""What becomes of a micro-batch's results: they go to a topic and to a table, to each of them once."""

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
    """The pipeline ends: no further micro-batch is written."""


class Sinks:
    """A function for `foreachBatch`. Each sink knows by the batch's number whether it has written it before."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = sinks
        self._writing = threading.Lock()
        self._closed = False

    def __call__(self, frame: DataFrame, number: int) -> None:
        """Write a batch wherever it is not written yet. Raises Closed, and what sinks raise."""
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
        """Wait until the batch that is being written is in every sink, and write no other."""
        with self._writing:
            self._closed = True

    @property
    def closed(self) -> bool:
        """Whether the end was asked for."""
        return self._closed


def sinks_of(settings: PipelineSettings, columns: Sequence[str]) -> Sinks:
    """Those of a pipeline whose steps give these columns. Raises WrongPipeline."""
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
            F.concat_ws("|", *(column(one).cast("string") for one in topic.key)) if topic.key else F.lit(None)
        )
        value = F.to_json(F.struct(*map(column, frame.columns)))
        write(frame.select(key.cast("string").alias("key"), value.alias("value")), number)

    return to_topic


def _check(names: Sequence[str], columns: Sequence[str], key: str) -> None:
    for name in names:
        if name not in columns:
            raise WrongPipeline(f"{key}: the steps give no column {name!r}; they give {', '.join(columns)}")
