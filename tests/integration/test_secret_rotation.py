"""Both secrets of a cluster are replaced under load, by the steps of docs/OPERATIONS.md, without failures for clients.

The old secrets become invalid.
"""

from __future__ import annotations

import asyncio
import os
import socket
import urllib.request
from functools import partial
from pathlib import Path

import pytest

from ottla import Admin, UserPassword
from ottla.cli.local_cluster.layout import known_layout
from ottla.protocol.messages.config_commands import ResourceType
from ottla.protocol.session.handshake import (
    CHANCE_BYTES,
    DIRECTORY_ID_BYTES,
    ClientHandshake,
    Identity,
    LinkSecurity,
    Role,
)
from ottla.protocol.session.node_secrets import Secrets
from tests.cluster import RunningCluster, running_cluster, wait_until
from tests.integration.history import SMALL_CLUSTER, Load, make_topic, read_all, wait_identical_replicas

pytestmark = pytest.mark.cluster

PER_SECOND = 100


def test_secrets_are_replaced_without_a_stop(tmp_path: Path) -> None:
    with running_cluster(tmp_path, settings=SMALL_CLUSTER) as cluster:
        make_topic(cluster.bootstrap, "rotated", 6, min_insync_replicas=2)
        asyncio.run(set_secrets(cluster))
        old = {
            name: (cluster.directory / name).read_text().strip()
            for name in ("cluster.secret", "quorum.secret")
        }
        new = {name: os.urandom(32).hex() for name in old}
        # Not one retry is allowed to run out.
        with Load(cluster.bootstrap, "rotated", PER_SECOND, settings={"message.timeout.ms": 20_000}) as load:
            for lines in ((old, new), (new, old), (new,)):
                for name in old:
                    text = "".join(f"{secrets[name]}\n" for secrets in lines)
                    (cluster.directory / name).write_text(text)
                restart_all(cluster, load)
                wait_until(partial(all_are_under_the_first, cluster), "the re-encrypted values")
        assert load.failed == []
        load.check(read_all(cluster.bootstrap, "rotated"))
        wait_identical_replicas(cluster, "rotated", 6)
        for role, name in ((Role.BROKER, "cluster.secret"), (Role.RAFT, "quorum.secret")):
            assert gets_in(cluster, role, new[name])
            assert not gets_in(cluster, role, old[name])
        assert not gets_in(cluster, Role.RAFT, new["cluster.secret"])


async def set_secrets(cluster: RunningCluster) -> None:
    """Store data that the quorum encrypts: keys of a user, and a setting of a broker. Nothing uses them here."""
    async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        await admin.alter_scram_credentials([UserPassword("ann", "ann's secret")])
        secret = {"listener.name.plaintext.ssl.key.password": "hunter2"}
        await admin.alter_configs(ResourceType.BROKER, str(cluster.brokers[0].id), secret)


def all_are_under_the_first(cluster: RunningCluster) -> bool:
    """Return whether all brokers' metrics report that no secret is under the old cluster secret, for which step 3
    waits.
    """
    for broker in cluster.brokers:
        with urllib.request.urlopen(broker.entry["metrics"], timeout=60) as answer:
            if "\nottla_secrets_under_old_cluster_secret 0\n" not in answer.read().decode():
                return False
    return True


def restart_all(cluster: RunningCluster, load: Load) -> None:
    for node in (*cluster.quorum, *cluster.brokers):
        load.wait_acknowledged(20)
        node.terminate()
        load.wait_acknowledged(20)
        node.restart()
        if node.role == "broker":
            cluster.wait_until_in_sync("rotated")
        else:
            cluster.wait_until_quorum_agrees()


def gets_in(cluster: RunningCluster, role: Role, secret: str) -> bool:
    """Return whether a quorum node accepts a peer with this secret."""
    identity = Identity(-1, os.urandom(DIRECTORY_ID_BYTES), known_layout(cluster.directory).cluster_id)
    security = LinkSecurity(Secrets((secret.encode(),)))
    handshake = ClientHandshake(security, identity, role, os.urandom(CHANCE_BYTES))
    with socket.create_connection(("127.0.0.1", cluster.quorum[0].port), 5) as connection:
        while not handshake.done:
            data = connection.recv(1000)
            if not data:
                return False
            connection.sendall(handshake.receive(data))
    return True
