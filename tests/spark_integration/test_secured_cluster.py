"""Spark on a secured cluster: its own connector and Ottla's, with the same options, and the rights of one user."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ottla import Acl, AclOperation, AclPermission, AclResourceType, Admin, PatternType
from tests.integration.secured_cells import (
    PASSWORD,
    PREFIXES,
    USER,
    admin_options,
    jaas_quoted,
    secured_cluster,
)
from tests.integration.tls_cluster import TlsCluster
from tests.spark_integration.kafka_connector import available

ROWS = 200
FORMATS = [
    "ottla",
    pytest.param(
        "kafka", marks=pytest.mark.skipif(not available(), reason="needs mvn to fetch the connector once")
    ),
]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsCluster]:
    """Run a secured cluster.

    The name is not `secured`, since tests that share that cluster of tests/integration run without a Spark session.
    """
    settings = {"default_replication_factor": "1", "offsets_topic_replication_factor": "1"}
    with secured_cluster(tmp_path_factory.mktemp("secured-spark"), brokers=1, **settings) as running:
        asyncio.run(_give_rights(running))
        yield running


async def _give_rights(cluster: TlsCluster) -> None:
    """Grant the rights that the sink needs besides its topics, by SPARK.md."""
    right = Acl(
        AclResourceType.TRANSACTIONAL_ID,
        "spark-",
        PatternType.PREFIXED,
        f"User:{USER}",
        "*",
        AclOperation.WRITE,
        AclPermission.ALLOW,
    )
    async with Admin(**admin_options(cluster)) as admin:
        await admin.create_acls([right])


def options(cluster: TlsCluster) -> dict[str, str]:
    """Return the options of Java's clients, for both formats."""
    given = f"username={jaas_quoted(USER)} password={jaas_quoted(PASSWORD)}"
    return {
        "kafka.bootstrap.servers": cluster.bootstrap("LOGINS"),
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": f"org.apache.kafka.common.security.scram.ScramLoginModule required {given};",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(cluster.ca_file),
    }


@pytest.mark.parametrize("name", FORMATS)
def test_batches_and_streams(spark: SparkSession, guarded: TlsCluster, tmp_path: Path, name: str) -> None:
    given = options(guarded)
    first, second = (f"{PREFIXES[USER]}{name}-{number}" for number in (1, 2))
    rows = spark.range(ROWS).selectExpr("cast(id as string) key", "cast(id as string) value")
    rows.write.format(name).mode("append").options(**given, topic=first).save()
    copied = (
        spark.readStream.format(name)
        .options(**given, subscribe=first, startingOffsets="earliest")
        .load()
        .writeStream.format(name)
        .options(**given, topic=second, checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert copied.awaitTermination(100)
    read = spark.read.format(name).options(**given, subscribe=second).load()
    assert sorted(int(row.value) for row in read.select("value").collect()) == list(range(ROWS))
