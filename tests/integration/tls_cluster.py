"""A cluster of one quorum node and some brokers whose listeners use TLS, each node a separate process."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from ottla.cli.local_cluster.ports import free_ports
from ottla.cli.nodes.java_properties import written
from tests.network.tls.certificates import Authority, Issued

START_S = 60.0
HOST = "127.0.0.1"
LISTENERS = ("PLAIN", "CLIENTS", "BROKERS", "LOGINS")


@dataclass
class TlsBroker:
    """A broker: its ports by listener, its settings, and its process."""

    id: int
    folder: Path
    ports: dict[str, int]
    issued: Issued
    settings: dict[str, str] = field(default_factory=dict)
    log_level: str = "info"
    process: subprocess.Popen[bytes] | None = None

    @property
    def key_file(self) -> Path:
        return self.folder / "own.pem"

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def start(self) -> None:
        file = self.folder / "broker.properties"
        file.write_text(written(self.settings))
        self.process = _start("broker", file, self.folder / "log", self.log_level)

    def stop(self, *, kill: bool = False) -> None:
        assert self.process is not None
        if kill:
            self.process.kill()
        else:
            self.process.terminate()
        self.process.wait(45)


@dataclass
class TlsCluster:
    """The brokers, and the authority that signs all certificates."""

    directory: Path
    authority: Authority
    ca_file: Path
    brokers: list[TlsBroker] = field(default_factory=list)
    quorum: subprocess.Popen[bytes] | None = None

    def bootstrap(self, listener: str = "CLIENTS") -> str:
        return ",".join(f"{HOST}:{broker.ports[listener]}" for broker in self.brokers)

    def client(self, **settings: str) -> dict[str, str]:
        """Return librdkafka's settings for the listener CLIENTS."""
        own = {
            "bootstrap.servers": self.bootstrap(),
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.ca_file),
            "log_level": "0",
        }
        return own | {name.replace("_", "."): value for name, value in settings.items()}

    def client_files(self, name: str) -> dict[str, str]:
        """Issue a client certificate, and return it as librdkafka's settings."""
        issued = self.authority.issue("client", common_name=name)
        chain, key = self.directory / f"{name}.pem", self.directory / f"{name}.key"
        chain.write_text("".join(issued.chain))
        key.write_text(issued.key_pem())
        return {"ssl.certificate.location": str(chain), "ssl.key.location": str(key)}


def wait_until(condition: Callable[[], bool], what: str, seconds: float = START_S) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} took too long"
        time.sleep(0.1)


def _start(role: str, file: Path, log: Path, log_level: str) -> subprocess.Popen[bytes]:
    with log.open("ab") as out:
        return subprocess.Popen(
            [sys.executable, "-m", "ottla.cli.main", role, "-c", str(file), "--log-level", log_level],
            stdout=out,
            stderr=subprocess.STDOUT,
            env={name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")},
        )


@contextmanager
def tls_cluster(
    directory: Path,
    brokers: int = 2,
    *,
    log_level: str = "info",
    adjust: Callable[[TlsBroker | None, dict[str, str]], None] = lambda broker, settings: None,
    **settings: str,
) -> Iterator[TlsCluster]:
    """Run a cluster. The listeners are CLIENTS and BROKERS with TLS, LOGINS with TLS and SASL, PLAIN with neither.
    BROKERS is for brokers.

    Settings have underscores in place of dots. `adjust` may change the settings of a broker, or of the quorum node
    (None), before it starts.
    """
    authority = Authority()
    cluster = TlsCluster(directory, authority, authority.trust_file(directory / "ca.pem"))
    secret = directory / "secret"
    secret.touch(mode=0o600)
    secret.write_text(secrets.token_hex(32))
    reserved: list[socket.socket] = []
    choosing = free_ports(reserved)
    quorum_port, *ports = (next(choosing) for _ in range(1 + len(LISTENERS) * brokers))
    choosing.close()
    common = {
        "cluster.id": "tls-cluster",
        "cluster.secret.file": str(secret),
        "controller.quorum.voters": f"101@{HOST}:{quorum_port}",
    }
    quorum = directory / "quorum"
    quorum.mkdir()
    file = quorum / "quorum.properties"
    own = common | {"node.id": "101", "process.roles": "controller", "log.dirs": str(quorum / "data")}
    own["listeners"] = f"CONTROLLER://{HOST}:{quorum_port}"
    adjust(None, own)
    file.write_text(written(own))
    cluster.quorum = _start("quorum", file, quorum / "log", log_level)
    with ExitStack() as stack:
        stack.callback(_end, cluster, cluster.quorum)
        for held in reserved:
            stack.callback(held.close)
        for number in range(1, brokers + 1):
            own = dict(
                zip(LISTENERS, ports[len(LISTENERS) * (number - 1) : len(LISTENERS) * number], strict=True)
            )
            broker = _broker(cluster, number, own, common)
            broker.settings |= {name.replace("_", "."): value for name, value in settings.items()}
            broker.log_level = log_level
            adjust(broker, broker.settings)
            broker.start()
        wait_until(lambda: brokers_seen(cluster) == brokers, "the start")
        yield cluster


def _broker(cluster: TlsCluster, number: int, ports: dict[str, int], common: dict[str, str]) -> TlsBroker:
    folder = cluster.directory / f"broker-{number}"
    folder.mkdir()
    issued = cluster.authority.issue(
        HOST, "localhost", common_name=f"broker-{number}", organization_unit="brokers"
    )
    broker = TlsBroker(number, folder, ports, issued)
    issued.pem_file(broker.key_file)
    broker.settings = common | {
        "node.id": str(number),
        "log.dirs": str(folder / "data"),
        "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items()),
        "listener.security.protocol.map": "PLAIN:PLAINTEXT,CLIENTS:SSL,BROKERS:SSL,LOGINS:SASL_SSL",
        "inter.broker.listener.name": "BROKERS",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(broker.key_file),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(cluster.ca_file),
        "ssl.client.auth": "requested",
        "listener.name.brokers.ssl.client.auth": "required",
        "listener.name.logins.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.logins.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule "
        'required user_ann="ann-secret";',
        "ssl.principal.mapping.rules": "RULE:^CN=(.*?),.*$/$1/,DEFAULT",
        "default.replication.factor": "2",
        "offsets.topic.replication.factor": "2",
        "offsets.topic.num.partitions": "4",
        "group.initial.rebalance.delay.ms": "0",
    }
    cluster.brokers.append(broker)
    return broker


def brokers_seen(cluster: TlsCluster) -> int:
    """Return the number of brokers that a client of CLIENTS sees."""
    try:
        return len(AdminClient(cluster.client()).list_topics(timeout=10).brokers)
    except KafkaException:
        return 0


def _end(cluster: TlsCluster, quorum: subprocess.Popen[bytes]) -> None:
    for broker in cluster.brokers:
        if broker.process is not None and broker.process.poll() is None:
            broker.process.kill()
            broker.process.wait()
    quorum.kill()
    quorum.wait()
