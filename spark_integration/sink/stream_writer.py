"""The writer of `df.writeStream.format("ottla")`: a transaction for each micro-batch.

The query's id names the transaction, and the batch's number is its application version. On the driver Spark makes one
writer for the tasks of a batch, and another for its end, in a separate process. The two share only the tasks' messages.
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
    """The writer of one micro-batch, for `df.writeStream`: tasks write on executors, and the driver commits."""

    def __init__(self, schema: StructType, options: Mapping[str, str], overwrite: bool) -> None:
        """Check options and columns. Raises WrongOption, WrongRows, and ValueError for output mode complete."""
        if overwrite:
            raise ValueError(
                "format('ottla') appends to a topic: output mode complete would replace what is there; use append or "
                "update"
            )
        self._options = of_stream(options)
        check_schema(schema, self._options.topic)

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task; runs on an executor."""
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
        """Commit the micro-batch's transaction after all tasks are done; runs on the driver."""
        decision.commit(self._options, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Abort the micro-batch's transaction after a task or the commit has finally failed; runs on the driver."""
        decision.abort(self._options, messages)
