"""`df.write.format("ottla")`: a transaction for the whole job. With the options transactionalId and appVersion it
counts once however often the job is run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from . import decision, task
from .options import of_batch, unique_id
from .rows import check_schema


class OttlaWriter(DataSourceArrowWriter):
    """Of one job."""

    def __init__(self, schema: StructType, options: Mapping[str, str], overwrite: bool) -> None:
        """Raises WrongOption and WrongRows; ValueError for mode overwrite."""
        if overwrite:
            raise ValueError("format('ottla') appends to a topic: use mode('append')")
        self._options = of_batch(options)
        self._name = self._options.transactional_id or unique_id()
        check_schema(schema, self._options.topic)

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        """On an executor."""
        if not self._options.exactly_once:
            return task.write_at_least_once(iterator, self._options)
        return task.write(iterator, self._options, self._name, self._options.app_version)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver, once every task is done."""
        decision.commit(self._options, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver, when a task has failed for good, or the commit did."""
        named = self._options.transactional_id is not None
        decision.abort(self._options, messages, None if named else self._name)
