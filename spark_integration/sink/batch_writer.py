"""The writer of `df.write.format("ottla")`: one transaction for the whole job.

With the options transactionalId and appVersion a job counts once, however often it runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from . import decision, task
from .options import of_batch, unique_id
from .rows import check_schema


class OttlaWriter(DataSourceArrowWriter):
    """The writer of one batch job, for `df.write`: tasks write on executors, and the driver commits."""

    def __init__(self, schema: StructType, options: Mapping[str, str], overwrite: bool) -> None:
        """Check options and columns. Raises WrongOption, WrongRows, and ValueError for mode overwrite."""
        if overwrite:
            raise ValueError("format('ottla') appends to a topic: use mode('append')")
        self._options = of_batch(options)
        self._name = self._options.transactional_id or unique_id()
        check_schema(schema, self._options.topic)

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task; runs on an executor."""
        if not self._options.exactly_once:
            return task.write_at_least_once(iterator, self._options)
        return task.write(iterator, self._options, self._name, self._options.app_version)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the job's transaction after all tasks are done; runs on the driver."""
        decision.commit(self._options, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Abort the job's transaction after a task or the commit has finally failed; runs on the driver."""
        named = self._options.transactional_id is not None
        decision.abort(self._options, messages, None if named else self._name)
