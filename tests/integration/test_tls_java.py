"""Kafka's Java clients and tools over TLS, with stores that keytool made."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import java
from tests.network.tls.certificates import PASSWORD, java_key_store, java_trust_store

from .tls_cluster import TlsCluster, tls_cluster, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.java, java.needs_java, pytest.mark.timeout(240)]
COUNT = 1000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsCluster]:
    with tls_cluster(tmp_path_factory.mktemp("tls-java"), brokers=1, **REPLICATION) as running:
        yield running


REPLICATION = {
    "default_replication_factor": "1",
    "offsets_topic_replication_factor": "1",
    "ssl_reload_interval_ms": "0",
}


def client_file(cluster: TlsCluster, folder: Path, kind: str) -> Path:
    issued = cluster.authority.issue("client", common_name="ann")
    keys = java_key_store(issued, folder / f"keys.{kind}", kind)
    trust = java_trust_store(folder / f"trust.{kind}", kind, cluster.authority.pem)
    file = folder / f"{kind}.properties"
    settings = {
        "security.protocol": "SSL",
        "ssl.keystore.location": keys,
        "ssl.keystore.password": PASSWORD,
        "ssl.key.password": PASSWORD,
        "ssl.truststore.location": trust,
        "ssl.truststore.password": PASSWORD,
        "ssl.keystore.type": kind,
        "ssl.truststore.type": kind,
    }
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return file


@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_a_producer_in_java(cluster: TlsCluster, tmp_path: Path, kind: str) -> None:
    said = java.run(
        "org.apache.kafka.tools.VerifiableProducer",
        *("--bootstrap-server", cluster.bootstrap(), "--topic", f"java-{kind}", "--acks", "-1"),
        *("--max-messages", str(COUNT), "--command-config", str(client_file(cluster, tmp_path, kind))),
    )
    names = [json.loads(line)["name"] for line in said.splitlines() if line.startswith("{")]
    assert names.count("producer_send_success") == COUNT
    assert "producer_send_error" not in names


def test_kafka_configs_has_a_file_read_anew(cluster: TlsCluster, tmp_path: Path) -> None:
    own = cluster.brokers[0]
    issued = cluster.authority.issue(
        "127.0.0.1", "localhost", common_name="broker-1", organization_unit="brokers"
    )
    issued.pem_file(own.key_file)
    java.run(
        "org.apache.kafka.tools.ConfigCommand",
        *(
            "--bootstrap-server",
            cluster.bootstrap(),
            "--entity-type",
            "brokers",
            "--entity-name",
            "1",
            "--alter",
        ),
        *("--add-config", f"listener.name.clients.ssl.keystore.location={own.key_file}"),
        *("--command-config", str(client_file(cluster, tmp_path, "PKCS12"))),
    )
    wait_until(lambda: "listener CLIENTS has new keys and certificates" in own.log, "the new certificate", 5)
