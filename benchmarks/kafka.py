"""Apache Kafka (KRaft) from Maven Central for comparisons: `with kafka_cluster(folder) as cluster: ...`

It runs with the JVM flags of its own start script and a heap of 512 MB for each process.
"""

from __future__ import annotations

import base64
import os
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from .clusters import START_TIMEOUT_S, Cluster, Node

KAFKA_VERSION = "4.4.0"
ARTIFACTS = (
    f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.5",
)
CACHE = Path("~/.cache/ottla-benchmarks").expanduser()
JAR_CACHE = CACHE / f"kafka-{KAFKA_VERSION}"
HOST = "127.0.0.1"

LOG4J = """<Configuration status="OFF"><Loggers><Root level="OFF"/></Loggers></Configuration>"""
JVM_TUNING = (
    *("-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *(
        "-XX:InitiatingHeapOccupancyPercent=35",
        "-XX:+ExplicitGCInvokesConcurrent",
        "-Djava.awt.headless=true",
    ),
)
JVM_FLAGS = ("-Xms512m", "-Xmx512m", *JVM_TUNING)


def kafka_jars() -> Path:
    """Return the folder with Kafka's jars; on first use fill it through `mvn`."""
    libs = maven_jars(JAR_CACHE.name, ARTIFACTS)
    (JAR_CACHE / "log4j2.xml").write_text(LOG4J)
    return libs


def maven_jars(name: str, artifacts: Sequence[str]) -> Path:
    """Return the folder with some artifacts and their dependencies; on first use fill it through `mvn`.

    `artifacts`: Maven's `group:artifact:version`.
    """
    cache = CACHE / name
    libs = cache / "libs"
    if not (cache / "complete").exists():
        if shutil.which("mvn") is None or shutil.which("java") is None:
            raise SystemExit("comparing with Apache Kafka needs `java` and `mvn` on the PATH")
        cache.mkdir(parents=True, exist_ok=True)
        (cache / "pom.xml").write_text(_pom(artifacts))
        goal = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
        command = ["mvn", "-q", "-B", "-ntp", "-f", str(cache / "pom.xml"), goal]
        subprocess.run([*command, f"-DoutputDirectory={libs}", "-DincludeScope=runtime"], check=True)
        (cache / "complete").touch()
    return libs


def _pom(artifacts: Sequence[str]) -> str:
    parts = (artifact.split(":") for artifact in artifacts)
    wanted = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
        "</dependency>"
        for group, name, version in parts
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>org.ottla.benchmarks</groupId><artifactId>classpath</artifactId><version>1</version>"
        f"<packaging>pom</packaging><dependencies>{wanted}</dependencies></project>"
    )


def free_ports(count: int) -> list[int]:
    held = [socket.socket() for _ in range(count)]
    for held_socket in held:
        held_socket.bind((HOST, 0))
    ports: list[int] = [held_socket.getsockname()[1] for held_socket in held]
    for held_socket in held:
        held_socket.close()
    return ports


def kafka_properties(
    node: int,
    ports: Mapping[int, int],
    brokers: list[int],
    voters: str,
    data: Path,
    settings: Mapping[str, str],
    listeners: Mapping[str, int],
) -> Path:
    """Write the properties file of a node. `listeners`: a broker's further listeners, each named for its protocol."""
    broker = node in brokers
    name = "PLAINTEXT" if broker else "CONTROLLER"
    factor = min(3, len(brokers))
    more = [f"{listener}://{HOST}:{port}" for listener, port in listeners.items()] if broker else []
    protocols = ",".join(f"{listener}:{listener}" for listener in ("PLAINTEXT", *listeners))
    properties = {
        "process.roles": "broker" if broker else "controller",
        "node.id": str(node),
        "controller.quorum.voters": voters,
        "listeners": ",".join([f"{name}://{HOST}:{ports[node]}", *more]),
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": f"{protocols},CONTROLLER:PLAINTEXT",
        "log.dirs": str(data / f"node-{node}"),
        "default.replication.factor": str(factor),
        "min.insync.replicas": str(min(2, factor)),
        "offsets.topic.replication.factor": str(factor),
        "group.initial.rebalance.delay.ms": "0",
    } | dict(settings)
    if broker:
        properties["advertised.listeners"] = properties["listeners"]
    path = data / f"node-{node}.properties"
    path.write_text("".join(f"{k}={v}\n" for k, v in properties.items()))
    return path


@contextmanager
def kafka_cluster(
    data: Path,
    *,
    brokers: int = 3,
    quorum: int = 3,
    settings: Mapping[str, str] | None = None,
    listeners: Sequence[str] = (),
) -> Iterator[Cluster]:
    """Run Apache Kafka in a new folder: formatted, started, and with every broker registered.

    `listeners`: protocols of the brokers besides PLAINTEXT, each on a separate port.
    """
    jars = kafka_jars()
    data.mkdir(parents=True, exist_ok=True)
    broker_ids, voter_ids = list(range(1, brokers + 1)), list(range(101, 101 + quorum))
    # All ports in one call: a second call might find the same ports.
    free = iter(free_ports(brokers + quorum + brokers * len(listeners)))
    ports = {i: next(free) for i in broker_ids + voter_ids}
    voters = ",".join(f"{i}@{HOST}:{ports[i]}" for i in voter_ids)
    cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "A", 1)
    java = ["java", *JVM_FLAGS, f"-Dlog4j2.configurationFile={JAR_CACHE / 'log4j2.xml'}", "-cp", f"{jars}/*"]
    more = {i: {listener: next(free) for listener in listeners} if i in broker_ids else {} for i in ports}
    files = {i: kafka_properties(i, ports, broker_ids, voters, data, settings or {}, more[i]) for i in ports}
    formats = [
        subprocess.Popen(
            [*java, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(file)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for file in files.values()
    ]
    told = [program.communicate()[0] for program in formats]
    for program, words in zip(formats, told, strict=True):
        if program.returncode:
            raise RuntimeError(f"Kafka's storage format ended with {program.returncode}: {words.strip()}")
    environment = dict(os.environ)
    cluster = Cluster("Apache Kafka", ",".join(f"{HOST}:{ports[i]}" for i in broker_ids), [], [])
    cluster.listeners = {
        listener: ",".join(f"{HOST}:{more[i][listener]}" for i in broker_ids) for listener in listeners
    }
    try:
        for i in voter_ids + broker_ids:
            node = Node(i, ports[i], 0, [*java, "kafka.Kafka", str(files[i])], str(data), environment)
            cluster.restart(node)
            (cluster.brokers if i in broker_ids else cluster.quorum).append(node)
        wait_registered(cluster)
        yield cluster
    finally:
        cluster.stop()


def wait_registered(cluster: Cluster) -> None:
    """Wait until a client sees every broker."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    admin = AdminClient(
        {
            "bootstrap.servers": cluster.bootstrap,
            "log_level": 0,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 50,
        }
    )
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            if len(admin.list_topics(timeout=1).brokers) == len(cluster.brokers):
                return
        except KafkaException:
            pass
        time.sleep(0.01)
    raise RuntimeError(f"{cluster.name}: brokers are not registered after {START_TIMEOUT_S} s")
