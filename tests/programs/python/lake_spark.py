"""Tables of a lake in Spark, by path, by the lake's folder, and by its catalog over HTTP.

Usage: lake_spark.py JAR FOLDER ADDRESS.

The lake has the tables checking and savings, whose transfers sum up to 0 at each tag, and the table accounts of upsert
mode.
"""

import json
import sys

from pyspark.sql import DataFrame, SparkSession

jar, folder, address = sys.argv[1:]
TRANSFERS = ("checking", "savings")
CATALOG = "org.apache.iceberg.spark.SparkCatalog"
NEWEST = """
SELECT * EXCEPT (newest) FROM (
  SELECT *, row_number() OVER (PARTITION BY ottla.`partition`, ottla.key ORDER BY ottla.offset DESC) AS newest
  FROM {catalog}.lake.accounts
) WHERE newest = 1 AND ottla_op = 'u'
"""
"""The view of docs/LAKE.md."""

spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.jars", jar)
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    .config("spark.sql.catalog.folder", CATALOG)
    .config("spark.sql.catalog.folder.type", "hadoop")
    .config("spark.sql.catalog.folder.warehouse", folder)
    .config("spark.sql.catalog.served", CATALOG)
    .config("spark.sql.catalog.served.type", "rest")
    .config("spark.sql.catalog.served.uri", address)
    .getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")


def places(frame: DataFrame) -> list[list[object]]:
    """Return partition, offset and value of the rows, in order."""
    chosen = frame.selectExpr("ottla.`partition` AS place", "ottla.offset", "string(value)")
    return [list(row) for row in chosen.orderBy("place", "offset").collect()]


def total(table: str, tag: str) -> int:
    """Return the sum of a table's amounts at a tag, asked for in both ways that Spark has."""
    by_option = spark.read.option("versionAsOf", tag).table(table)
    by_clause = spark.sql(f"SELECT * FROM {table} VERSION AS OF '{tag}'")
    option, clause = (
        frame.selectExpr("sum(int(string(value)))").first()[0] for frame in (by_option, by_clause)
    )
    assert option == clause, (table, tag)
    return option


def told(catalog: str) -> dict[str, object]:
    """Return the newest rows of the transfers, their sums at each tag, and the newest rows of accounts."""
    tables = {name: f"{catalog}.lake.{name}" for name in TRANSFERS}
    refs = spark.sql(f"SELECT name FROM {tables['checking']}.refs WHERE type = 'TAG' ORDER BY name")
    return {
        "newest": {name: places(spark.table(table)) for name, table in tables.items()},
        "tags": {row.name: [total(table, row.name) for table in tables.values()] for row in refs.collect()},
        "accounts": [
            list(row)
            for row in spark.sql(NEWEST.format(catalog=catalog))
            .selectExpr("string(ottla.key) AS key", "owner", "amount")
            .orderBy("key")
            .collect()
        ],
    }


by_path = {name: places(spark.read.format("iceberg").load(f"{folder}/lake/{name}")) for name in TRANSFERS}
print(json.dumps({"path": by_path, "folder": told("folder"), "served": told("served")}))
