"""Work on the executors. Each accepted attempt returns one result; those of failed or superfluous attempts are lost."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from .failures import BatchRefused

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    Batches = Iterator[pa.RecordBatch]
    Work = Callable[[Batches], Any]


def run_tasks(frame: DataFrame, work: Work) -> list[Any]:
    """Call `work` with each partition on the executors, and return the results of the accepted attempts.

    Results are JSON values. `work` is sent to executors, so it must be picklable. An exception fails the task, which
    Spark may retry. BatchRefused, which retries would not change, is raised here at once.
    """

    def task(batches: Batches) -> Batches:
        import pyarrow as pa

        try:
            answer = {"result": work(batches)}
        except BatchRefused as error:
            answer = {"refused": str(error)}
            for _ in batches:
                pass  # Spark expects all rows to be read
        yield pa.RecordBatch.from_pydict({"answer": [json.dumps(answer)]})

    answers = [json.loads(row[0]) for row in frame.mapInArrow(task, "answer string").collect()]
    for answer in answers:
        if "refused" in answer:
            raise BatchRefused(answer["refused"])
    return [answer["result"] for answer in answers]


def pass_over(frame: DataFrame) -> None:
    """Evaluate a batch that is skipped.

    A query with state (of aggregates, say) carries its state over only if all rows are read. Otherwise Spark fails with
    STATE_STORE_COMMIT_VALIDATION_FAILED.
    """
    frame.write.format("noop").mode("overwrite").save()


def batches_at_driver(frame: DataFrame) -> Batches:
    """Yield the rows on the driver. A single partition at a time is in memory."""
    import pyarrow as pa

    def packed(batches: Batches) -> Batches:
        for batch in batches:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema) as stream:
                stream.write_batch(batch)
            yield pa.RecordBatch.from_pydict({"packed": [sink.getvalue().to_pybytes()]})

    for row in frame.mapInArrow(packed, "packed binary").toLocalIterator():
        with pa.ipc.open_stream(row[0]) as stream:
            yield from stream


def attempt_id() -> int:
    """Return the attempt id of the running task, which is unique in the application."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None, "runs on an executor"
    return context.taskAttemptId()


def rows_of(batch: pa.RecordBatch) -> Iterator[Sequence[Any]]:
    """Return the rows as tuples of Python values; zoned times keep their zone.

    Raises BatchRefused for a date or time outside the years 1 to 9999, which Spark supports and Python does not.
    """
    columns = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            columns.append(column.to_pylist())
        except (OverflowError, ValueError) as error:
            raise BatchRefused(
                f"the column {name!r}, which is {column.type}, has a value that drivers cannot take: {error}. "
                "Dates and times are of the years 1 to 9999: filter others out, or cast the column to a string"
            ) from error
    return zip(*columns, strict=True)
