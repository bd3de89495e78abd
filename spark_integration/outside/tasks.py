"""Work on the executors. The result of a failed or superfluous attempt is lost, that of an accepted one comes once."""

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
    """Call `work` with each partition, on the executors: the results of the accepted attempts, which are JSON values.

    `work` is sent to them, so it must be possible to pickle it. What it raises fails the task, which Spark may retry;
    only BatchRefused, which retries would not change, is raised here at once.
    """

    def task(batches: Batches) -> Batches:
        import pyarrow as pa

        try:
            answer = {"result": work(batches)}
        except BatchRefused as error:
            answer = {"refused": str(error)}
            for _ in batches:
                pass  # Spark wants to be rid of them
        yield pa.RecordBatch.from_pydict({"answer": [json.dumps(answer)]})

    answers = [json.loads(row[0]) for row in frame.mapInArrow(task, "answer string").collect()]
    for answer in answers:
        if "refused" in answer:
            raise BatchRefused(answer["refused"])
    return [answer["result"] for answer in answers]


def pass_over(frame: DataFrame) -> None:
    """Evaluate a batch that is skipped. A query with state, of aggregates say, takes its state over by this, and Spark
    fails, with STATE_STORE_COMMIT_VALIDATION_FAILED, if nobody has asked for all rows.
    """
    frame.write.format("noop").mode("overwrite").save()


def batches_at_driver(frame: DataFrame) -> Batches:
    """The rows, here: one partition of them at a time is in memory."""
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
    """Of the task that this runs in: no other attempt in the application has it."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None, "runs on an executor"
    return context.taskAttemptId()


def rows_of(batch: pa.RecordBatch) -> Iterator[Sequence[Any]]:
    """Return the rows as tuples of Python's values; times with a time zone have one. Raises BatchRefused for a date or
    a time outside the years 1 to 9999, which Spark has and Python has not."""
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
