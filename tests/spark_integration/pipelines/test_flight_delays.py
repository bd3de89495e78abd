"""The pipeline of the demo compared with plain Python: its counts, the accepted flights, and the ends of windows."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from ottla.cli.nodes.settings import read_settings
from ottla.spark_integration import read_arrow_table
from ottla.spark_integration.pipelines.flight_delays import flight_delays, until
from ottla.spark_integration.pipelines.progress import BatchProgress
from ottla.spark_integration.pipelines.running import Pipeline, PipelineFailed
from ottla.spark_integration.pipelines.settings import WrongPipeline, read_pipeline
from ottla.testing.local_cluster import LocalCluster
from tests.spark_integration.mishaps import forget_last_commit
from tests.spark_integration.pipelines.flights import (
    AFTERWARDS,
    Flight,
    Result,
    expected,
    in_table,
    in_topic,
    publish,
    publish_end,
    result,
    some_flights,
)
from tests.spark_integration.topics import records

File = Callable[[Mapping[str, str]], Path]
MANY = some_flights(3000, days=20)


def frame(spark: SparkSession, values: list[bytes]) -> DataFrame:
    rows = [(bytearray(value), "flights", 0, number) for number, value in enumerate(values)]
    return spark.createDataFrame(rows, "value binary, topic string, partition int, offset long")


def computed(records: DataFrame, **parameters: Any) -> Result:
    return result(row.asDict() for row in flight_delays(records, **parameters).collect())


def test_csv_and_json_say_the_same(spark: SparkSession) -> None:
    some = MANY[:300]
    hours = expected(some, timedelta(hours=6))
    assert computed(frame(spark, [flight.csv() for flight in some]), window="6 hours") == hours
    assert (
        computed(frame(spark, [flight.json() for flight in some]), window="6 hours", format="json") == hours
    )


NO_FLIGHTS = (
    b"",
    b"hello",
    b"until tomorrow",
    MANY[0].csv().replace(b"2013,1,", b"2013,13,", 1),
    MANY[0].csv().replace(b",JFK,", b",JFK", 1).rsplit(b",", 12)[0],
    MANY[0].csv().replace(b",%d," % (MANY[0].delay or 0), b",soon,", 1),
)


def test_what_is_no_flight_is_told_or_left_out(spark: SparkSession) -> None:
    mixed = frame(spark, [MANY[0].csv(), until(AFTERWARDS), *NO_FLIGHTS])
    assert computed(mixed, malformed="skip") == expected(MANY[:1])
    malformed = mixed.where("offset = 0 or offset = 7")
    with pytest.raises(Exception, match=r"flights-0, offset 7 holds no flight; steps.malformed: skip"):
        computed(malformed)


def test_of_json_only_what_is_needed_has_to_be_there(spark: SparkSession) -> None:
    value = json.dumps({"year": 2013, "month": 1, "day": 1, "hour": 0, "minute": 0, "carrier": "AA"}).encode()
    found = computed(frame(spark, [value]), format="json")
    assert list(found.values()) == [(1, 0, 0, None)]
    with pytest.raises(Exception, match="offset 0 holds no flight"):
        computed(frame(spark, [b'{"carrier": "AA"}']), format="json")


def test_a_time_that_is_none_is_named(spark: SparkSession) -> None:
    with pytest.raises(ValueError, match="window is a time like '1 day' or '30 minutes', not 'soon'"):
        flight_delays(frame(spark, []), window="soon")


# ---------------------------------------------------------------- the whole pipeline


def run(spark: SparkSession, cluster: LocalCluster, file: Path) -> list[BatchProgress]:
    """Run the pipeline to the present end of the topic."""
    given = read_settings(file) | {"trigger": "available-now"}
    settings = read_pipeline(given, file.parent, cluster.bootstrap_servers)
    return list(Pipeline(settings, file.parent).start(spark).progress())


def test_every_window_comes_once_and_none_before_its_end(
    streaming: SparkSession, spark_cluster: LocalCluster, topics: tuple[str, str], pipeline_file: File
) -> None:
    servers, (flights, delays) = spark_cluster.bootstrap_servers, topics
    file = pipeline_file({"source.maxOffsetsPerTrigger": "700"})
    half = len(MANY) // 2
    publish(servers, flights, MANY[:half])
    first = run(streaming, spark_cluster, file)
    assert sum(progress.rows for progress in first) == half
    assert [progress.behind for progress in first if progress.rows] == [800, 100, 0]
    end = MANY[half - 1].scheduled - timedelta(days=2)  # the watermark
    over = {place: row for place, row in expected(MANY).items() if place[1] + timedelta(days=1) <= end}
    assert over
    assert in_topic(spark_cluster, delays) == over
    assert forget_last_commit(file.parent / "checkpoint") == first[-1].batch
    publish(servers, flights, MANY[half:])
    publish_end(servers, flights)
    second = run(streaming, spark_cluster, file)
    assert second[0].batch == first[-1].batch, "both sinks have it, and it is played again"
    assert sum(progress.late for progress in first + second) == 0
    assert in_topic(spark_cluster, delays) == in_table(file) == expected(MANY)


def test_a_flight_behind_the_watermark_is_told(
    streaming: SparkSession, spark_cluster: LocalCluster, topics: tuple[str, str], pipeline_file: File
) -> None:
    servers, (flights, delays) = spark_cluster.bootstrap_servers, topics
    publish(servers, flights, MANY[:50])
    publish_end(servers, flights)
    file = pipeline_file({})
    run(streaming, spark_cluster, file)
    publish(servers, flights, [Flight(MANY[0].scheduled, "AA", 5)])
    progress = run(streaming, spark_cluster, file)
    assert sum(batch.late for batch in progress) == 1
    assert "1 too late" in str(progress[0])
    assert in_topic(spark_cluster, delays) == in_table(file) == expected(MANY[:50])


OWN_STEPS = """
def counted(records, *, least: int = 0):
    return records.selectExpr("topic", "partition", "length(value) AS bytes").where(f"bytes >= {least}")
"""


def test_steps_of_ones_own(
    streaming: SparkSession, spark_cluster: LocalCluster, topics: tuple[str, str], pipeline_file: File
) -> None:
    servers, (flights, delays) = spark_cluster.bootstrap_servers, topics
    publish(servers, flights, MANY[:9])
    changed = {"steps.use": "own.py:counted", "steps.least": "60", "parquet.partition_by": "partition"}
    file = pipeline_file(changed | {"topic.key": "topic,partition", "steps.watermark": ""})
    file.write_text("".join(line for line in file.read_text().splitlines(True) if "watermark" not in line))
    (file.parent / "own.py").write_text(OWN_STEPS)
    run(streaming, spark_cluster, file)
    lengths = [
        (number % 3, len(flight.csv())) for number, flight in enumerate(MANY[:9]) if len(flight.csv()) >= 60
    ]
    found = records(spark_cluster, delays)
    assert {record.key for record in found} == {f"{flights}|{index}".encode() for index, _ in lengths}
    rows = [json.loads(record.value or b"") for record in found]
    assert sorted((row["partition"], row["bytes"]) for row in rows) == sorted(lengths)
    table = read_arrow_table(str(file.parent / "table")).to_pylist()
    assert sorted((row["partition"], row["bytes"]) for row in table) == sorted(lengths)


def test_a_sink_that_failed_catches_up_with_the_other(
    streaming: SparkSession, spark_cluster: LocalCluster, topics: tuple[str, str], pipeline_file: File
) -> None:
    servers, (flights, delays) = spark_cluster.bootstrap_servers, topics
    publish(servers, flights, MANY[:9])
    file = pipeline_file({"steps.use": "own.py:counted", "topic.key": "topic"})
    file.write_text("".join(line for line in file.read_text().splitlines(True) if "watermark" not in line))
    (file.parent / "own.py").write_text(OWN_STEPS)
    (file.parent / "table").touch()  # where a folder should be
    with pytest.raises(PipelineFailed, match="table"):
        run(streaming, spark_cluster, file)
    assert len(records(spark_cluster, delays)) == 9
    (file.parent / "table").unlink()
    run(streaming, spark_cluster, file)
    assert len(records(spark_cluster, delays)) == 9
    assert read_arrow_table(str(file.parent / "table")).num_rows == 9


def test_what_ends_the_query_is_told_in_one_line(
    streaming: SparkSession, spark_cluster: LocalCluster, topics: tuple[str, str], pipeline_file: File
) -> None:
    servers, (flights, delays) = spark_cluster.bootstrap_servers, topics
    publish(servers, flights, MANY[:3])
    publish_end(servers, flights)
    publish(servers, flights, MANY[:1])
    file = pipeline_file({"steps.format": "json"})
    with pytest.raises(PipelineFailed, match=r"^[^\n]*holds no flight; steps\.malformed: skip[^\n]*$"):
        run(streaming, spark_cluster, file)
    assert records(spark_cluster, delays) == []


def test_columns_that_the_steps_do_not_give_are_named(
    streaming: SparkSession, spark_cluster: LocalCluster, pipeline_file: File
) -> None:
    for key in ("topic.key", "parquet.partition_by"):
        file = pipeline_file({key: "carier"})
        with pytest.raises(
            WrongPipeline, match=f"{key}: the steps give no column 'carier'; they give carrier, "
        ):
            run(streaming, spark_cluster, file)
