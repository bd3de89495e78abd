"""Reads a table of Parquet files: only the files that commits name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .hadoop_store import is_in_store
from .parquet_commits import logs
from .parquet_layout import Layout, column, literal_path, local_folder
from .stored_parquet import read_stored_table

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


def parquet_files(path: str) -> list[Path]:
    """Return the files that count now: all batches of each query up to its last commit. Raises OutsideError without a
    table, and ValueError for a table in a store.
    """
    table = local_folder(path)
    Layout.read(table)
    return [table / file.path for log in logs(table) for file in log.files()]


def read_parquet_table(spark: SparkSession, path: str) -> DataFrame:
    """Return the current content of the table as a Spark frame. Raises OutsideError if there is no table."""
    if is_in_store(path):
        return read_stored_table(spark, path)
    table = local_folder(path)
    schema = Layout.read(table).spark_schema()
    files = [str(file) for file in parquet_files(path)]
    if not files:
        return spark.createDataFrame([], schema)
    found = spark.read.schema(schema).option("basePath", str(table)).parquet(*map(literal_path, files))
    return found.select(*map(column, schema.fieldNames()))  # Spark puts partition columns last


def read_arrow_table(path: str) -> pa.Table:
    """Return the current content of the table, read with pyarrow alone. Raises OutsideError if there is no table, and
    ValueError for a table in a store.
    """
    import pyarrow as pa
    import pyarrow.dataset as ds

    table = local_folder(path)
    layout = Layout.read(table)
    fields = [pa.field(field["name"], _arrow_type(field["type"])) for field in layout.schema["fields"]]
    folders = pa.schema([field for field in fields if field.name in layout.folders])
    return ds.dataset(
        [str(file) for file in parquet_files(path)],
        schema=pa.schema(fields),
        format="parquet",
        partitioning=ds.HivePartitioning(folders),
        partition_base_dir=str(table),
    ).to_table()


def _arrow_type(kind: Any) -> Any:
    """Return the Arrow type for a type in Spark's JSON form."""
    import pyarrow as pa

    if isinstance(kind, dict):
        if kind["type"] == "array":
            return pa.list_(_arrow_type(kind["elementType"]))
        if kind["type"] == "map":
            return pa.map_(_arrow_type(kind["keyType"]), _arrow_type(kind["valueType"]))
        return pa.struct([(field["name"], _arrow_type(field["type"])) for field in kind["fields"]])
    if decimal := re.fullmatch(r"decimal\((\d+),(\d+)\)", kind):
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    if kind.startswith(("char(", "varchar(")):
        return pa.string()
    return {
        "boolean": pa.bool_(),
        "byte": pa.int8(),
        "short": pa.int16(),
        "integer": pa.int32(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "string": pa.string(),
        "binary": pa.binary(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestamp_ntz": pa.timestamp("us"),
    }[kind]
