"""`df.writeStream.format("ottla")`: a transaction for each micro-batch, named by the query, with the batch's number as
application version.

Spark makes a writer on the driver for the tasks of a batch, and another one for its end, in a process of its own: what
they have in common is what the tasks' messages say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ..streaming_query import BATCH_ID, QUERY_ID
from . import decision, task
from .options import of_stream
from .rows import check_schema


class OttlaStreamWriter(DataSourceStreamArrowWriter):
    """Of one micro-batch."""

    def __init__(self, schema: StructType, options: Mapping[str, str], overwrite: bool) -> None:
        """Raises WrongOption and WrongRows; ValueError for output mode complete."""
        if overwrite:
            raise ValueError(
                "format('ottla') appends to a topic: output mode complete would replace what is there; use append or "
                "update"
            )
        self._options = of_stream(options)
        check_schema(schema, self._options.topic)

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        """On an executor."""
        if not self._options.exactly_once:
            return task.write_at_least_once(iterator, self._options)
        context = TaskContext.get()
        query, batch = (
            None if context is None else context.getLocalProperty(name) for name in (QUERY_ID, BATCH_ID)
        )
        if query is None or batch is None:
            raise RuntimeError(f"Spark tells no {QUERY_ID} and {BATCH_ID} in tasks of a stream")
        given = self._options.transactional_id
        name = f"{given or 'spark'}-{query}"
        return task.write(iterator, self._options, name, int(batch), alone_under=given)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """On the driver, once every task is done."""
        decision.commit(self._options, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """On the driver, when a task has failed for good, or the commit did."""
        decision.abort(self._options, messages)
