"""Costs of security in Ottla and Apache Kafka: TLS, logins, idle connections, an authorizer.

    python -m benchmarks.security [FIGURE ...] [--only ottla|kafka] [--rounds N] [--json] [--record FILE]

FIGURES: throughput writers readers connections handshakes unknown_users memory authorizer decisions (all of them
without arguments, some ten minutes). One broker and one quorum node; the key is ECDSA. The load of `throughput` and
`authorizer` comes from confluent-kafka (librdkafka), and that of `readers` from librdkafka and from bare sockets. The
load of `handshakes` comes from OpenSSL's own client, which also tests a server of OpenSSL. Bare sockets are the load of
the other figures. Kafka's authorizer remembers no decision, and Java resumes few of the sessions that OpenSSL offers.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from ottla import Admin
from ottla.protocol.cluster.acls import Acl, AclOperation, AclPermission, PatternType

from . import authorizer as decided
from .clusters import Cluster
from .compare import admin_of, cpu_seconds, new_topic, resident_mb, write_to
from .cpu import cpu_s
from .failed_logins import MECHANISMS as FAILED_LOGINS
from .failed_logins import how_often_longer, seconds_of
from .kafka import JVM_FLAGS, kafka_jars
from .moving_together import together
from .openssl_handshakes import bare_server, shaken_hands
from .rounds import Figure, Goal, Launch, Row, main
from .secured_clusters import AUTHORIZER, CA_FILE, LOGINS, OWN_FILE, TLS, secured_kafka, secured_ottla
from .security_clients import Peer, trusting
from .security_readers import KINDS, LibrdkafkaReader, read_together

GIGABYTES, WARM_GIGABYTES = 0.8, 0.4
PARTITIONS = 6
READERS = (1, 2, 3)
WRITERS = (1, 2)
CONNECTIONS_S = 5.0
HANDSHAKES_S = 6
FAILURES = 1_500
"""Number of logins of the existing user, and of unknown users."""
CLIENTS = 2
IDLE, IDLE_BEFORE = 1_000, 200
"""Number of measured connections, and of connections that are open before them."""

LAUNCHERS: dict[str, Launch] = {"ottla": secured_ottla, "kafka": secured_kafka}
FASTER, CHEAPER = Goal(1.5, is_least=True), Goal(0.6, is_least=False)
GOALS = {f"TLS, {what}, MB/s": FASTER for what in ("produce", "fetch")} | {
    f"TLS, {what}, broker CPU s/GB": CHEAPER for what in ("produce", "fetch")
}
GOALS |= {
    f"{kind}, {count} at once, {unit}": goal
    for kind, count in itertools.product(KINDS, READERS)
    for unit, goal in (("MB/s", FASTER), ("broker CPU s/GB", CHEAPER))
}
GOALS |= {
    f"sockets write, {count} at once, {unit}": goal
    for count in WRITERS
    for unit, goal in (("MB/s", FASTER), ("broker CPU s/GB", CHEAPER))
}


def throughput(launch: Launch, data: Path) -> Row:
    """Measure 1 KB records in batches of up to 256 KB: written with acks=all, then read, over each listener."""
    row: Row = {}
    with launch(data) as cluster:
        over_tls = {
            "bootstrap.servers": cluster.listeners[TLS],
            "security.protocol": "SSL",
            "ssl.ca.location": str(data / CA_FILE),
        }
        for name, settings in (("plaintext", {}), ("TLS", over_tls)):
            row |= written_and_read(cluster, name, settings)
    return row


def written_and_read(cluster: Cluster, name: str, settings: Mapping[str, str]) -> Row:
    """Write and read after a warm-up; `settings` are further settings of both clients."""
    for gigabytes in (WARM_GIGABYTES, GIGABYTES):
        topic = new_topic(cluster, admin_of(cluster), PARTITIONS)
        found = {
            "produce": write_to(cluster, topic, gigabytes, settings),
            "fetch": read_from(cluster, topic, settings),
        }
    return {f"{name}, {what}, {unit}": v for what, readings in found.items() for unit, v in readings.items()}


def read_from(cluster: Cluster, topic: str, settings: Mapping[str, str]) -> Row:
    """Read all records of a topic."""
    reader = LibrdkafkaReader(cluster.bootstrap, settings, topic, range(PARTITIONS))
    before, start = cpu_seconds(cluster.brokers), time.monotonic()
    read = reader.read()
    elapsed = time.monotonic() - start
    cpu = cpu_seconds(cluster.brokers) - before
    reader.close()
    return {"MB/s": read / 1e6 / elapsed, "broker CPU s/GB": cpu / read * 1e9}


def writers(launch: Launch, data: Path) -> Row:
    """Write a topic over TLS with programs that have less work than the broker."""
    row: Row = {}
    with launch(data) as cluster:
        admin = admin_of(cluster)
        for count in WRITERS:
            for gigabytes in (WARM_GIGABYTES, GIGABYTES):
                topic = new_topic(cluster, admin, PARTITIONS)
                shares = [
                    [str(number) for number in range(first, PARTITIONS, count)] for first in range(count)
                ]
                told = [cluster.listeners[TLS], str(data / CA_FILE), topic, str(gigabytes * 1e3 / count)]
                arguments = [[*told, *share] for share in shares]
                found = together(cluster, "benchmarks.security_writers", arguments, "writers'")
            row |= {f"sockets write, {count} at once, {unit}": value for unit, value in found.items()}
    return row


def readers(launch: Launch, data: Path) -> Row:
    """Read the same topic over TLS with growing numbers of programs, which share its partitions.

    First the programs are consumers, which have more work than the broker, then sockets, which have less.
    """
    row: Row = {}
    with launch(data) as cluster:
        admin = admin_of(cluster)
        topics = []
        for gigabytes in (WARM_GIGABYTES, GIGABYTES):
            topics.append(new_topic(cluster, admin, PARTITIONS))
            write_to(cluster, topics[-1], gigabytes, {})
        for kind, count in itertools.product(KINDS, READERS):
            for topic in topics:
                found = read_together(cluster, kind, count, data / CA_FILE, topic, PARTITIONS)
            row |= {f"{kind}, {count} at once, {unit}": value for unit, value in found.items()}
    return row


def connections(launch: Launch, data: Path) -> Row:
    """Measure new connections up to their first answer, and SCRAM-SHA-256 logins without TLS, of two clients at a
    time.
    """
    row: Row = {}
    with launch(data) as cluster:
        for name, kind, listener in (
            ("TLS, full handshake", "full", TLS),
            ("TLS, with a session to resume", "resumed", TLS),
            ("SCRAM login", "logins", LOGINS),
        ):
            connected(cluster, data, kind, listener, CONNECTIONS_S / 2)
            row |= {
                f"{name}, {unit}": value
                for unit, value in connected(cluster, data, kind, listener, CONNECTIONS_S).items()
            }
    return row


def connected(cluster: Cluster, data: Path, kind: str, listener: str, seconds: float) -> Row:
    """Connect from separate programs."""
    command = [sys.executable, "-m", "benchmarks.security_clients", kind, cluster.listeners[listener]]
    command += [str(data / CA_FILE), str(seconds)]
    before = cpu_seconds(cluster.brokers)
    clients = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(CLIENTS)]
    told = [json.loads(client.communicate()[0]) for client in clients]
    cpu = cpu_seconds(cluster.brokers) - before
    count, resumed = (sum(report[key] for report in told) for key in ("count", "resumed"))
    row = {"per second": count / seconds, "broker CPU ms": cpu / count * 1e3}
    return row | {"resumed, share": resumed / count} if kind == "resumed" else row


def handshakes(launch: Launch, data: Path) -> Row:
    """Measure handshakes of OpenSSL's clients, with the broker, and with a server that only makes handshakes."""
    row: Row = {}
    with launch(data) as cluster, bare_server(data / OWN_FILE) as (bare, bare_pid):
        for name, address, pid in (
            ("broker", cluster.listeners[TLS], cluster.brokers[0].pid),
            ("openssl s_server", bare, bare_pid),
        ):
            for seconds in (HANDSHAKES_S // 2, HANDSHAKES_S):
                before = cpu_s(pid)
                count = shaken_hands(address, data / CA_FILE, seconds, CLIENTS)
                cpu = cpu_s(pid) - before
            row |= {f"{name}, per second": count / seconds, f"{name}, CPU ms": cpu / count * 1e3}
    return row


def unknown_users(launch: Launch, data: Path) -> Row:
    """Measure failed logins of an existing user and of unknown users, and how often the latter take longer."""
    row: Row = {}
    with launch(data) as cluster:
        for mechanism in FAILED_LOGINS:
            seconds_of(cluster.listeners[LOGINS], mechanism, FAILURES // 5)
            known, unknown = seconds_of(cluster.listeners[LOGINS], mechanism, FAILURES)
            row |= {
                f"{mechanism}, a user, us": statistics.median(known) * 1e6,
                f"{mechanism}, nobody, us": statistics.median(unknown) * 1e6,
                f"{mechanism}, how often nobody takes longer": how_often_longer(unknown, known),
            }
    return row


def memory(launch: Launch, data: Path) -> Row:
    """Measure the memory of one more idle connection, which the broker has answered once."""
    row: Row = {}
    with launch(data) as cluster:
        for name, address in (("plaintext", cluster.bootstrap), ("TLS", cluster.listeners[TLS])):
            context = trusting(str(data / CA_FILE)) if name == "TLS" else None
            held: list[Peer] = []
            sizes = []
            for count in (IDLE_BEFORE, IDLE_BEFORE + IDLE):
                while len(held) < count:
                    held.append(Peer(address, context))
                    held[-1].first_answer()
                time.sleep(1)
                sizes.append(resident_mb(cluster.brokers))
            for connection in held:
                connection.close()
            row[f"{name}, KB per connection"] = (sizes[1] - sizes[0]) * 1e3 / IDLE
    return row


def authorizer(launch: Launch, data: Path) -> Row:
    """Measure plaintext without an authorizer, and with one that has 1,000 ACLs and decides every request."""
    row: Row = {}
    with launch(data / "open") as cluster:
        row |= written_and_read(cluster, "without", {})
    with launch(data / "guarded", settings=AUTHORIZER) as cluster:
        asyncio.run(create_acls(cluster))
        row |= written_and_read(cluster, "with", {})
    return row


async def create_acls(cluster: Cluster) -> None:
    """Create 1,000 ACLs of other users, and one that allows all users everything on all topics."""
    owners = [("*", "User:*"), *((f"other-{number}", f"User:u{number % 50}") for number in range(1_000))]
    async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        await admin.create_acls(
            [
                Acl(
                    decided.TOPIC,
                    name,
                    PatternType.LITERAL,
                    owner,
                    "*",
                    AclOperation.ALL,
                    AclPermission.ALLOW,
                )
                for name, owner in owners
            ]
        )


def decisions(launch: Launch, _data: Path) -> Row:
    """Measure the authorizers alone: one decision with this number of ACLs, remembered and not."""
    row: Row = {}
    for count in decided.COUNTS:
        if launch is secured_kafka:
            remembered = cold = kafkas_decision(decided.make_acls(count, random.Random(count)))
        else:
            remembered, cold, *_ = decided.measure(count)
        row |= {f"{count:,} ACLs, remembered, us": remembered, f"{count:,} ACLs, not remembered, us": cold}
    return row


def kafkas_decision(acls: list[Acl]) -> float:
    """Return microseconds of a decision of Kafka's StandardAuthorizer in a separate JVM."""
    source = Path(__file__).parent / "reference" / "AuthorizerTimes.java"
    lines = ["\t".join(["acl", *(str(int(v)) if isinstance(v, int) else v for v in acl)]) for acl in acls]
    lines += [f"ask\t{name}" for name in decided.NAMES]
    done = subprocess.run(
        ["java", *JVM_FLAGS, "-cp", f"{kafka_jars()}/*", str(source)],
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout.split()[-1])


FIGURES: dict[str, Figure] = {
    "throughput": throughput,
    "writers": writers,
    "readers": readers,
    "connections": connections,
    "handshakes": handshakes,
    "unknown_users": unknown_users,
    "memory": memory,
    "authorizer": authorizer,
    "decisions": decisions,
}


if __name__ == "__main__":
    sys.exit(main(__doc__, FIGURES, rounds=1, launchers=LAUNCHERS, goals=GOALS))
