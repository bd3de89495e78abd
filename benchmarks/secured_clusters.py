"""One broker and one quorum node, of Ottla or Apache Kafka, with encrypted and with authenticated listeners.

Both have the same keys, the same settings and the same user, who authenticates with SCRAM-SHA-256.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import trustme

from ottla import Admin, UserPassword
from ottla.cli.local_cluster.liveness import is_alive
from ottla.cli.nodes.java_properties import entries, written

from .clusters import START_TIMEOUT_S, Cluster, Node, ottla_cluster
from .kafka import HOST, free_ports, kafka_cluster, wait_registered

TLS, LOGINS = "SSL", "SASL_PLAINTEXT"
USER, PASSWORD, MECHANISM = "bench", "the benchmark's password", "SCRAM-SHA-256"
CA_FILE, OWN_FILE = "ca.pem", "own.pem"
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:root",
    "allow.everyone.if.no.acl.found": "true",
}
"""Settings of an authorizer without super users, so it decides every request. Resources without ACLs are open, so that
brokers can start.
"""

_PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


def _security(data: Path) -> dict[str, str]:
    """Return the settings of a broker, and make its key and certificate in `data`. The key is ECDSA, P-256."""
    data.mkdir(parents=True, exist_ok=True)
    authority = trustme.CA()
    (data / CA_FILE).write_bytes(authority.cert_pem.bytes())
    issued = authority.issue_cert(HOST, "localhost", common_name="broker")
    chain = b"".join(pem.bytes() for pem in issued.cert_chain_pems)
    (data / OWN_FILE).write_bytes(_pkcs8(issued.private_key_pem.bytes()) + chain)
    prefix = f"listener.name.{LOGINS.lower()}"
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(data / OWN_FILE),
        "sasl.enabled.mechanisms": f"{MECHANISM},PLAIN",
        f"{prefix}.{MECHANISM.lower()}.sasl.jaas.config": f"{_MODULE} required;",
        f"{prefix}.plain.sasl.jaas.config": f'{_PLAIN_MODULE} required user_{USER}="{PASSWORD}";',
        # Otherwise Kafka delays its refusals.
        "connection.failed.authentication.delay.ms": "0",
    }


def _pkcs8(pem: bytes) -> bytes:
    """Return the same private key in PKCS#8, the only form that Java reads."""
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(pem, None)
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


@contextmanager
def secured_kafka(data: Path, *, settings: Mapping[str, str] | None = None) -> Iterator[Cluster]:
    """Run Apache Kafka; `settings` go to both nodes."""
    chosen = {**_security(data), **(settings or {})}
    with kafka_cluster(
        data / "kafka", brokers=1, quorum=1, settings=chosen, listeners=(TLS, LOGINS)
    ) as cluster:
        _create_user(cluster)
        yield cluster


@contextmanager
def secured_ottla(data: Path, *, settings: Mapping[str, str] | None = None) -> Iterator[Cluster]:
    """Run Ottla; `settings` go to both nodes. `ottla up` chooses the listeners, so the broker is restarted with its
    own.
    """
    # The slower of the two methods to check a plain-text password.
    security = _security(data) | {"sasl.plain.verify": "scram"}
    with ottla_cluster(data / "ottla", brokers=1, quorum=1, settings=settings) as cluster:
        (broker,) = cluster.brokers
        ports = dict(zip((TLS, LOGINS), free_ports(2), strict=True))
        listeners = ",".join(
            [f"PLAINTEXT://{HOST}:{broker.port}"] + [f"{n}://{HOST}:{p}" for n, p in ports.items()]
        )
        _restart_with(cluster, broker, security | {"listeners": listeners, "advertised.listeners": listeners})
        cluster.listeners = {name: f"{HOST}:{port}" for name, port in ports.items()}
        _create_user(cluster)
        yield cluster


def _restart_with(cluster: Cluster, broker: Node, settings: Mapping[str, str]) -> None:
    os.kill(broker.pid, signal.SIGTERM)
    deadline = time.monotonic() + START_TIMEOUT_S
    while is_alive(broker.pid):
        if time.monotonic() > deadline:
            raise TimeoutError(f"broker {broker.id} has not ended after {START_TIMEOUT_S} s")
        time.sleep(0.01)
    file = Path(broker.argv[broker.argv.index("-c") + 1])
    found = {key: value for _, key, value in entries(file.read_text())}
    file.write_text(written(found | dict(settings)))
    cluster.restart(broker)
    wait_registered(cluster)


def _create_user(cluster: Cluster) -> None:
    asyncio.run(_alter(cluster.bootstrap))


async def _alter(bootstrap: str) -> None:
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.alter_scram_credentials([UserPassword(USER, PASSWORD, MECHANISM)])
        deadline = time.monotonic() + START_TIMEOUT_S
        while not await admin.describe_scram_credentials():
            if time.monotonic() > deadline:
                raise TimeoutError(f"the user is not known after {START_TIMEOUT_S} s")
            await asyncio.sleep(0.05)
