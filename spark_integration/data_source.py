"""The data source `format("ottla")`: it makes the readers and writers that Spark asks for."""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType


class OttlaDataSource(DataSource):
    """Topics of a cluster, with rows like those of Spark's own Kafka source and sink."""

    @classmethod
    def name(cls) -> str:
        """Return the name to use in `format("ottla")`."""
        return "ottla"

    def schema(self) -> StructType:
        """Return the columns that the source reads."""
        from .source.rows import source_schema

        return source_schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader for `spark.read`."""
        from .source.batch_reader import OttlaReader

        return OttlaReader(self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader for `spark.readStream`."""
        from .source.stream_reader import OttlaStreamReader

        return OttlaStreamReader(self.options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer for `df.write`."""
        from .sink.batch_writer import OttlaWriter

        return OttlaWriter(schema, self.options, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the writer for `df.writeStream`."""
        from .sink.stream_writer import OttlaStreamWriter

        return OttlaStreamWriter(schema, self.options, overwrite)
