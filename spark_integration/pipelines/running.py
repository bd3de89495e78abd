"""A running pipeline: it is started, reports every micro-batch, and stops on request between two of them."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from .progress import BatchProgress, batch_progress
from .settings import PipelineSettings, WrongPipeline
from .sinks import Sinks, sinks_of
from .steps import find_steps, parameters_of, steps_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ASKED_EVERY_S = 0.1
_ERROR = re.compile(r"(?!SQLSTATE)(?:\w+\.)*[A-Z]\w+: ")
"""Last line of a Python traceback, and first line of a Java one."""


class PipelineFailed(RuntimeError):
    """An error that ended the query; the message states it. A restart continues from the checkpoint."""


class Pipeline:
    """A pipeline as its file describes it; the query begins with `start`."""

    def __init__(self, settings: PipelineSettings, folder: Path) -> None:
        """Find the steps and check their parameters. `folder`: the base of the path of a user's steps file. Raises
        WrongPipeline.
        """
        self.settings = settings
        self._steps = find_steps(settings.steps, folder)
        self._parameters = parameters_of(self._steps, settings.parameters)
        self._file = steps_file(settings.steps, folder)

    def start(self, spark: SparkSession) -> RunningPipeline:
        """Start the query; it continues from its checkpoint. Raises WrongPipeline, and errors of Spark."""
        if self._file is not None:
            spark.sparkContext.addPyFile(str(self._file))
        settings = self.settings
        records = spark.readStream.format("ottla").options(**settings.source_options).load()
        try:
            results = self._steps(records, **self._parameters)
        except ValueError as error:
            raise WrongPipeline(f"steps: {error}") from error
        sinks = sinks_of(settings, results.columns)
        writer = results.writeStream.queryName(settings.name).outputMode("append")
        writer = writer.option("checkpointLocation", settings.checkpoint).foreachBatch(sinks)
        if settings.interval is None:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=settings.interval)
        return RunningPipeline(writer.start(), sinks)


class RunningPipeline:
    """A running pipeline: a Spark query that reports its progress, and stops between two micro-batches."""

    def __init__(self, query: StreamingQuery, sinks: Sinks) -> None:
        self._query = query
        self._sinks = sinks
        self._stop = threading.Event()
        self._told = ""

    def ask_to_stop(self) -> None:
        """Request the end of the pipeline: the iterator `progress` ends soon. Safe in signal handlers."""
        self._stop.set()

    def progress(self) -> Iterator[BatchProgress]:
        """Yield each finished micro-batch, until the query ends or is asked to stop. Raises PipelineFailed."""
        while self._query.isActive and not self._stop.is_set():
            yield from self._news()
            self._stop.wait(ASKED_EVERY_S)
        if self._stop.is_set():
            self.stop()
        yield from self._news()
        error = self._query.exception()
        if error is not None and not self._sinks.closed:
            raise PipelineFailed(_cause(str(error)))

    def stop(self) -> None:
        """Stop between two micro-batches: a batch that is being written first reaches all sinks."""
        self._sinks.close()
        self._query.stop()

    def _news(self) -> Iterator[BatchProgress]:
        last = self._query.lastProgress
        if last is None or last.timestamp <= self._told:
            return
        for progress in self._query.recentProgress:  # there may be newer reports than `last` by now
            if progress.timestamp <= self._told:
                continue
            self._told = progress.timestamp
            if (done := batch_progress(json.loads(progress.json))) is not None:
                yield done


def _cause(text: str) -> str:
    """Return the line with the cause from a Spark error, which contains stack traces of Python and Java."""
    for what_follows in ("JVM stacktrace", "=== Streaming Query ==="):
        text = text.partition(what_follows)[0]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if _ERROR.match(line)]
    return (errors or lines or ["the query has ended with an error"])[-1]
