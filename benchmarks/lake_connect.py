"""Kafka Connect with Iceberg's sink, from Maven Central, for comparisons with the lake.

A standalone worker with a heap of 1 GB writes one topic in JSON to a table. Its settings are chosen in favour of the
sink:

- two tasks, one for each core of the reference machine;
- no checksum files beside local files, and no columns of Kafka's metadata;
- a commit each second or two, and `offset.flush.interval.ms` of a second. With the default of a minute, a task without
  new records answers to the coordinator's commits once a minute.
- timeouts of sessions and transactions of ten seconds, after which a killed task is given up.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ottla.lake.iceberg.catalogs import CATALOG_FILE, NAME, LakePlace, open_catalog

from .kafka import HOST, JVM_TUNING, free_ports, maven_jars
from .lake_topics import create

CONNECT_VERSION = "4.3.1"
"""Iceberg's sink 1.12.0 does not start in Connect 4.4.0: it uses a class `AppInfoParser` that Kafka has moved."""
ICEBERG_VERSION = "1.12.0"
ARTIFACTS = (
    f"org.apache.kafka:connect-runtime:{CONNECT_VERSION}",
    f"org.apache.kafka:connect-json:{CONNECT_VERSION}",
    f"org.apache.iceberg:iceberg-kafka-connect:{ICEBERG_VERSION}",
    f"org.apache.iceberg:iceberg-parquet:{ICEBERG_VERSION}",
    "org.apache.hadoop:hadoop-client-api:3.4.3",
    "org.apache.hadoop:hadoop-client-runtime:3.4.3",
    "org.xerial:sqlite-jdbc:3.54.1.0",
    "org.slf4j:slf4j-simple:1.7.36",
)
HEAP = ("-Xms256m", "-Xmx1g")
TASKS = 2
GIVEN_UP_MS = 10_000
_JSON = "org.apache.kafka.connect.json.JsonConverter"
_BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"


def connect_jars() -> Path:
    """Return the folder with the jars of Connect and of the sink; on first use fill it through `mvn`."""
    return maven_jars(f"connect-{CONNECT_VERSION}-iceberg-{ICEBERG_VERSION}", ARTIFACTS)


def connect_argv(bootstrap: str, lake: Path, topic: str, table: str, commit_ms: int) -> list[str]:
    """Return the argv of a worker that writes a topic to a table of a lake's folder. The folder's catalog is made, and
    the sink's control topic.
    """
    open_catalog(LakePlace(lake), create=True)
    create(bootstrap, _control_topic(lake), {}, partitions=1)
    worker, sink = lake / "worker.properties", lake / "sink.properties"
    _write(worker, _worker_settings(bootstrap, lake))
    _write(sink, _sink_settings(bootstrap, lake, topic, table, commit_ms))
    return [
        *("java", *HEAP, *JVM_TUNING, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"),
        *("-cp", f"{connect_jars()}/*", "org.apache.kafka.connect.cli.ConnectStandalone"),
        *(str(worker), str(sink)),
    ]


def _control_topic(lake: Path) -> str:
    return f"control-{lake.name}"


def _worker_settings(bootstrap: str, lake: Path) -> Mapping[str, str]:
    (port,) = free_ports(1)
    return {
        "bootstrap.servers": bootstrap,
        "listeners": f"http://{HOST}:{port}",
        "plugin.discovery": "service_load",
        "key.converter": _BYTES,
        "value.converter": _JSON,
        "value.converter.schemas.enable": "false",
        "offset.storage.file.filename": str(lake / "offsets"),
        "offset.flush.interval.ms": "1000",
        "consumer.session.timeout.ms": str(GIVEN_UP_MS),
    }


def _sink_settings(bootstrap: str, lake: Path, topic: str, table: str, commit_ms: int) -> Mapping[str, str]:
    return {
        "name": lake.name,
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "tasks.max": str(TASKS),
        "topics": topic,
        "consumer.override.auto.offset.reset": "earliest",
        "iceberg.tables": table,
        "iceberg.tables.auto-create-enabled": "true",
        "iceberg.control.topic": _control_topic(lake),
        "iceberg.control.commit.interval-ms": str(commit_ms),
        "iceberg.kafka.bootstrap.servers": bootstrap,
        "iceberg.kafka.session.timeout.ms": str(GIVEN_UP_MS),
        "iceberg.kafka.transaction.timeout.ms": str(GIVEN_UP_MS),
        "iceberg.catalog": NAME,
        "iceberg.catalog.type": "jdbc",
        "iceberg.catalog.uri": f"jdbc:sqlite:{lake / CATALOG_FILE}",
        "iceberg.catalog.jdbc.busy_timeout": "30000",
        "iceberg.catalog.warehouse": lake.as_uri(),
        "iceberg.catalog.io-impl": "org.apache.iceberg.hadoop.HadoopFileIO",
        "iceberg.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    }


def _write(path: Path, settings: Mapping[str, str]) -> None:
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
