"""A Spark driver that appends a topic to an Iceberg table, with foreachBatch and pyiceberg, for `benchmarks.lake`.

    python -m benchmarks.lake_by_batch BOOTSTRAP TOPIC FOLDER [--dies-in BATCH]

The columns are those of the lake's raw mode. With `--dies-in` the driver kills itself with SIGKILL when that
micro-batch is in the table and not in Spark's checkpoint.
"""

from __future__ import annotations

import argparse
import os
import signal
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ottla.lake.iceberg.catalogs import LakePlace, ensure_namespace, open_catalog
from ottla.spark_integration.pipelines.session import open_session

TABLE = "spark.flights"
PER_BATCH = 200_000


def main() -> None:
    """Run the query until everything that was there is in the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bootstrap")
    parser.add_argument("topic")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dies-in", type=int, default=-1)
    args = parser.parse_args()
    catalog = open_catalog(LakePlace(args.folder), create=True)
    properties = {"spark.ui.enabled": "false", "spark.driver.memory": "2g"}
    spark = open_session("by-batch", "local[2]", properties)
    records = (
        spark.readStream.format("ottla")
        .option("kafka.bootstrap.servers", args.bootstrap)
        .option("subscribe", args.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(PER_BATCH))
        .load()
    )
    rows = records.select(F.struct("partition", "offset", "timestamp", "key").alias("ottla"), "value")

    def write(frame: DataFrame, number: int) -> None:
        batch = frame.toArrow()
        ensure_namespace(catalog, TABLE)
        catalog.create_table_if_not_exists(TABLE, batch.schema).append(batch)
        if number == args.dies_in:
            os.killpg(os.getpid(), signal.SIGKILL)

    query = rows.writeStream.foreachBatch(write).option("checkpointLocation", str(args.folder / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
