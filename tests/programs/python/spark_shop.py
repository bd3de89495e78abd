"""Two queries by Spark's own Kafka connector: the words of each batch are counted, and orders joined with payments.

python spark_shop.py BOOTSTRAP FOLDER JAR,JAR...

"lines" is counted into "counts" by foreachBatch, each count with the number of its batch. A payment within ten seconds
of an order is joined with it into "paid". While FOLDER has a file "hold", a batch that is written waits for ever, and
Spark does not learn that it is done.
"""

import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

bootstrap, folder, jars = sys.argv[1:]
session = (
    SparkSession.builder.master("local[2]")
    .config("spark.jars", jars)
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.sql.adaptive.enabled", "false")
    .config("spark.sql.codegen.wholeStage", "false")  # compiling takes longer than these queries do
    .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    .getOrCreate()
)
session.sparkContext.setLogLevel("WARN")
sink = {"kafka.bootstrap.servers": bootstrap}


def stream(topic: str) -> DataFrame:
    """Return key, value and time of a topic's records."""
    source = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    return (
        session.readStream.format("kafka")
        .options(**source)
        .load()
        .selectExpr("CAST(key AS STRING) key", "CAST(value AS STRING) value", "timestamp")
    )


def count_words(lines: DataFrame, batch: int) -> None:
    words = lines.select(sql.explode(sql.split("value", " ")).alias("word")).groupBy("word").count()
    counts = words.selectExpr("word AS key", f"concat('{batch} ', count) AS value")
    counts.write.format("kafka").options(**sink).option("topic", "counts").save()
    if Path(folder, "hold").exists():
        print(f"batch {batch} is written and held")
        while True:
            time.sleep(60)


orders, payments = (
    stream(topic).withWatermark("timestamp", "10 minutes") for topic in ("orders", "payments")
)
within = "INTERVAL 10 SECONDS"
joined = orders.alias("o").join(
    payments.alias("p"),
    sql.expr(f"o.key = p.key AND p.timestamp BETWEEN o.timestamp - {within} AND o.timestamp + {within}"),
)
stream("lines").writeStream.foreachBatch(count_words).option("checkpointLocation", f"{folder}/counts").start()
joined.selectExpr("o.key AS key", "concat(o.value, '+', p.value) AS value").writeStream.format(
    "kafka"
).options(**sink).option("topic", "paid").option("checkpointLocation", f"{folder}/paid").start()
print("both queries run")
session.streams.awaitAnyTermination()
