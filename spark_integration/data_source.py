"""`format("ottla")`: which object reads, and which one writes."""

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
    """Topics of a cluster, as rows like those of Spark's own Kafka source and sink."""

    @classmethod
    def name(cls) -> str:
        """As in `format("ottla")`."""
        return "ottla"

    def schema(self) -> StructType:
        """Of what is read."""
        from .source.rows import source_schema

        return source_schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """For `spark.read`."""
        from .source.batch_reader import OttlaReader

        return OttlaReader(self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """For `spark.readStream`."""
        from .source.stream_reader import OttlaStreamReader

        return OttlaStreamReader(self.options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """For `df.write`."""
        from .sink.batch_writer import OttlaWriter

        return OttlaWriter(schema, self.options, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """For `df.writeStream`."""
        from .sink.stream_writer import OttlaStreamWriter

        return OttlaStreamWriter(schema, self.options, overwrite)
