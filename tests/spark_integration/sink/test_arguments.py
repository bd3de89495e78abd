"""Options and columns of writers that cannot be: each is named, with what may be."""

from __future__ import annotations

import re

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from ottla.spark_integration.options import WrongOption
from ottla.spark_integration.sink.options import OPTIONS, TRANSACTIONAL_ID, of_batch, of_stream
from ottla.spark_integration.sink.rows import WrongRows, check_schema

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


@pytest.mark.parametrize(
    ("schema", "topic", "message"),
    [
        ("key string", "t", "there is no column 'value' to be written; there are key string"),
        ("value int", "t", "column 'value' is of int, and has to be of binary or string: cast it"),
        ("value string, key int", "t", "column 'key' is of int, and has to be of binary or string"),
        ("value string", None, "neither option 'topic' nor a column of this name; there are value string"),
        ("value string, topic int", None, "column 'topic' is of int, and has to be of string"),
        ("value string, partition string", "t", "column 'partition' is of string, and has to be of int"),
        ("value string, headers string", "t", "column 'headers' is of string, and has to be of array<"),
        (
            "value string, headers array<struct<key:string,value:string>>",
            "t",
            "has to be of array<struct<key",
        ),
        ("value string, value string", "t", "there are 2 columns 'value' among value string, value string"),
    ],
)
def test_columns(spark: SparkSession, schema: str, topic: str | None, message: str) -> None:
    with pytest.raises(WrongRows, match=re.escape(message)):
        check_schema(StructType.fromDDL(schema), topic)


def test_other_columns_do_not_matter(spark: SparkSession) -> None:
    check_schema(StructType.fromDDL("value binary, topic int, time timestamp"), "t")
    check_schema(StructType.fromDDL("value string, topic string, partition int"), None)


def test_the_defaults_in_the_table_are_those_in_force() -> None:
    defaults = {row.name: row.default for row in OPTIONS if row.default and row.name != TRANSACTIONAL_ID}
    assert of_batch(SERVERS | defaults) == of_batch(SERVERS)
    assert len(defaults) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topik": "t"}, "format('ottla') has no option 'topik'; did you mean 'topic'?"),
        ({"kafka.linger": "5"}, "has no option 'kafka.linger'; did you mean 'kafka.linger.ms'?"),
        ({"kafka.linger.ms": "x"}, "option 'kafka.linger.ms' is a whole number from 0 on, not 'x'"),
        ({"delivery": "maybe"}, "option 'delivery' is exactly-once or at-least-once, not 'maybe'"),
        ({"delivery": "at-least-once", "transactionalId": "x"}, "there is no transaction to be named"),
        ({"appVersion": "1"}, "option 'appVersion' needs 'transactionalId'"),
        (
            {"appVersion": "-1", "transactionalId": "x"},
            "option 'appVersion' is a whole number from 0 on, not '-1'",
        ),
        ({"transactionTimeoutMs": "0"}, "'transactionTimeoutMs' is a whole number from 1 on, not '0'"),
        ({"topic": ""}, "option 'topic' is empty"),
        ({"kafka.bootstrap.servers": ""}, "option 'kafka.bootstrap.servers' is missing"),
    ],
)
def test_options(options: dict[str, str], message: str) -> None:
    with pytest.raises(WrongOption, match=re.escape(message)):
        of_batch({**SERVERS, **options})


def test_names_of_options_are_taken_in_any_case() -> None:
    parsed = of_batch({"KAFKA.Bootstrap.Servers": "h:1", "TOPIC": "t", "checkpointLocation": "/c"})
    assert (parsed.client, parsed.topic) == ({"bootstrap_servers": "h:1"}, "t")


def test_a_stream_has_versions_of_its_own() -> None:
    with pytest.raises(WrongOption, match="a stream's batches have their numbers as versions"):
        of_stream({**SERVERS, "appVersion": "1", "transactionalId": "x"})
