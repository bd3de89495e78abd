"""Logins that expire and are renewed every few seconds, while brokers are killed: no acknowledged record is lost, no
client hangs, and none fails to get a password.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests import java
from tests.faults.renewing_clients import SETTLE_S, OfJava, OfLibrdkafka, Ours, Renewing, wait_for_more
from tests.integration.secured_cells import Cell, cells, secured_cluster
from tests.integration.secured_clients import librdkafka_options
from tests.integration.tls_cluster import TlsCluster, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

SETTINGS = {
    "default_replication_factor": "3",
    "offsets_topic_replication_factor": "3",
    "min_insync_replicas": "2",
    "broker_session_timeout_ms": "2000",
}
BROKERS = 3
AWAY_S = (0.2, 3.0)


@pytest.mark.short
def test_a_few_kills(tmp_path: Path, seed: int) -> None:
    play(tmp_path, seed, renewed_ms=3_000, run_s=6, makers=[OfLibrdkafka, Ours])


@java.needs_java
@pytest.mark.java
def test_minutes_of_kills(tmp_path: Path, seed: int) -> None:
    makers = [OfLibrdkafka, Ours, lambda cell: OfJava(cell, tmp_path)]
    play(tmp_path, seed, renewed_ms=10_000, run_s=180, makers=makers)


def play(
    folder: Path, seed: int, *, renewed_ms: int, run_s: float, makers: list[Callable[[Cell], Renewing]]
) -> None:
    """Kill brokers one after the other, in the order of the seed."""
    chance = random.Random(seed)
    reauth = {"connections_max_reauth_ms": str(renewed_ms)}
    with secured_cluster(folder, BROKERS, **SETTINGS, **reauth) as cluster, ExitStack() as stack:
        clients = [maker(_cell(cluster, f"renewing-{n}")) for n, maker in enumerate(makers)]
        for client in clients:
            stack.enter_context(client.running())
        wait_for_more(clients)
        until = time.monotonic() + run_s
        while time.monotonic() < until:
            victim = chance.choice(cluster.brokers)
            victim.stop(kill=True)
            time.sleep(chance.uniform(*AWAY_S))
            victim.start()
            wait_for_more(clients)
            wait_until(lambda: _in_sync(cluster, clients), "all replicas in sync")
        quiet = time.monotonic() + 2 * renewed_ms / 1000
        while time.monotonic() < quiet:
            wait_for_more(clients)
        for client in clients:
            client.stop_writing()
            assert not client.failed, f"seed {seed}, {client.cell.topic}: {client.failed[:3]}"
            wait_until(
                lambda client=client: client.acknowledged <= client.read, "the acknowledged records", SETTLE_S
            )


def _cell(cluster: TlsCluster, client: str) -> Cell:
    """Return the cell for SCRAM-SHA-512 over TLS, with an existing topic."""
    (cell,) = (
        candidate for candidate in cells(cluster, client) if candidate.name == "SASL_SSL-SCRAM-SHA-512"
    )
    admin = AdminClient(librdkafka_options(cell) | {"log_level": 0})
    admin.create_topics([NewTopic(cell.topic, 3, BROKERS)])[cell.topic].result(30)
    return cell


def _in_sync(cluster: TlsCluster, clients: list[Renewing]) -> bool:
    admin = AdminClient(librdkafka_options(clients[0].cell) | {"log_level": 0})
    topics = admin.list_topics(timeout=30).topics
    found = [part for client in clients for part in topics[client.cell.topic].partitions.values()]
    return len(found) == 3 * len(clients) and all(len(partition.isrs) == BROKERS for partition in found)
