"""A cluster from before security becomes a secured one under load, by the steps of docs/OPERATIONS.md: no send fails.

At first the nodes run the code of that time, out of the repository's history.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ottla import (
    Admin,
    AuthenticationFailed,
    AuthorizationFailed,
    KafkaError,
    NewTopic,
    UserPassword,
)
from ottla.cli.local_cluster.ports import free_ports
from ottla.protocol.cluster.authorizer_settings import STANDARD_AUTHORIZER
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.features import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.testing.nodes import Node
from tests.certificates import Authority
from tests.faults.node_cluster import ROOT, NodeCluster, node_cluster
from tests.faults.older_versions import BEFORE_SECURITY, code_of
from tests.faults.own_load import OwnLoad
from tests.faults.secured import ANYBODY, HOST, LISTENER, Access, listener_settings, may_do_all
from tests.integration.history import SMALL_CLUSTER, Load, make_topic, read_all
from tests.raw_peer import Peer

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

TOPIC, PARTITIONS = "upgraded", 4
PER_SECOND = 100
ADMIN, ADMIN_PASSWORD = "admin", "the admin's secret"
APP, APP_PASSWORD = "app", "the app's secret"
FEATURE = "ottla.security.version"
Changes = Callable[[Node], dict[str, str]]


@dataclass
class Upgrade:
    """A cluster, its authority, and its running loads."""

    cluster: NodeCluster
    authority: Authority
    ports: dict[int, int]
    """Ports of the TLS listeners, by broker."""
    theirs: list[Load] = field(default_factory=list)
    ours: list[OwnLoad] = field(default_factory=list)

    @property
    def secured(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self.ports.values())

    def access(self, user: str, password: str) -> Access:
        return Access(self.authority.file, user, password)

    def wait_acknowledged(self) -> None:
        """Return once all running loads have more acknowledgements."""
        for theirs in self.theirs:
            theirs.wait_acknowledged(20, 60)
        for ours in self.ours:
            ours.wait_acknowledged(20, 60)

    def roll(self, nodes: Sequence[Node], changes: Changes | None = None, code: Path | None = None) -> None:
        """Restart one node after the other, with changed settings or code."""
        for node in nodes:
            self.cluster.restart(node, {} if changes is None else changes(node), code)
            self.wait_acknowledged()


def raise_feature(port: int) -> int:
    """Raise the feature level that brings ACLs and users; return the error."""
    update = FeatureUpdateKey(feature=FEATURE, max_version_level=1)
    peer = Peer(port)
    try:
        answer = peer.ask(UpdateFeaturesRequest(feature_updates=[update]), 1, 30)
        return int(answer.error_code or next((result.error_code for result in answer.results), 0))
    finally:
        peer.close()


async def create_users_and_acls(admin: Admin) -> None:
    """Create the load's user, who may write to the topic and read it."""
    await admin.alter_scram_credentials(
        [UserPassword(APP, APP_PASSWORD), UserPassword(ADMIN, ADMIN_PASSWORD)]
    )
    await admin.create_acls(may_do_all(APP, TOPIC))


@pytest.mark.parametrize(
    ("quorum", "brokers"),
    [pytest.param(1, 2, id="small", marks=pytest.mark.short), pytest.param(3, 3, id="whole")],
)
def test_a_cluster_becomes_secured_under_load(tmp_path: Path, quorum: int, brokers: int) -> None:
    older = code_of(BEFORE_SECURITY, tmp_path / "older")
    settings = SMALL_CLUSTER | {"offsets.topic.replication.factor": str(brokers)}
    with (
        node_cluster(
            tmp_path / "cluster", quorum=quorum, brokers=brokers, settings=settings, code=older
        ) as cluster,
        ExitStack() as plain_clients,
    ):
        make_topic(cluster.bootstrap, TOPIC, PARTITIONS, brokers, min_insync_replicas=brokers - 1)
        cluster.topics = [TOPIC]
        upgrade = Upgrade(cluster, Authority(tmp_path / "certificates"), {})
        start_loads(upgrade, plain_clients, cluster.bootstrap, "plain")

        # 1. the new version, quorum nodes first
        upgrade.roll(cluster.quorum, code=ROOT)
        upgrade.roll(cluster.brokers[:-1], code=ROOT)
        assert raise_feature(cluster.brokers[0].port) != ErrorCode.NONE, "a broker of the past lets all pass"
        upgrade.roll(cluster.brokers[-1:], code=ROOT)

        # 2. an authorizer, and listeners that ask for a login: beside them the plain one is open to all
        opened = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": f"{ANYBODY};User:{ADMIN}"}
        take_ports(upgrade)
        upgrade.roll(cluster.quorum, lambda _node: opened)
        upgrade.roll(cluster.brokers, lambda node: opened | both_listeners(upgrade, node))
        with pytest.raises(KafkaError) as refused:
            asyncio.run(by_admin(cluster.bootstrap, create_users_and_acls))
        assert refused.value.code == ErrorCode.UNSUPPORTED_VERSION

        # 3. the feature, users and ACLs
        assert raise_feature(cluster.brokers[0].port) == ErrorCode.NONE
        asyncio.run(by_admin(cluster.bootstrap, create_users_and_acls))

        # 4. clients move
        with ExitStack() as moved:
            start_loads(upgrade, moved, upgrade.secured, "secured", upgrade.access(APP, APP_PASSWORD))
            upgrade.wait_acknowledged()
            plain_clients.close()
            plain = upgrade.theirs.pop(0), upgrade.ours.pop(0)

            # 5. brokers follow each other over the new listener
            move_own_clients(upgrade)
            upgrade.roll(cluster.brokers, lambda _node: {"inter.broker.listener.name": LISTENER})

            # 6. Remove the plain listener, and the rights of its clients.
            closed = {"super.users": f"User:{ADMIN}"}
            upgrade.roll(cluster.brokers, lambda node: closed | only_secured(upgrade, node))
            upgrade.roll(cluster.quorum, lambda _node: closed)
        check(upgrade, [plain[0], *upgrade.theirs], [plain[1], *upgrade.ours])
        asyncio.run(refused_to_others(upgrade))


def start_loads(
    upgrade: Upgrade, until: ExitStack, bootstrap: str, name: str, access: Access | None = None
) -> None:
    """Start a load of confluent-kafka and one of Ottla; none of their retries may run out."""
    settings, options = ({}, {}) if access is None else (access.settings, access.options)
    theirs = Load(bootstrap, TOPIC, PER_SECOND, len(name), settings | {"message.timeout.ms": "60000"})
    ours = OwnLoad(bootstrap, TOPIC, name, PER_SECOND, **options)
    for load in (theirs, ours):
        until.enter_context(load)
    upgrade.theirs.append(theirs)
    upgrade.ours.append(ours)


def take_ports(upgrade: Upgrade) -> None:
    """Choose a port for the new listener of each broker."""
    choosing = free_ports(upgrade.cluster.layout.reserved)
    upgrade.ports |= {node.id: next(choosing) for node in upgrade.cluster.brokers}
    choosing.close()


def both_listeners(upgrade: Upgrade, node: Node) -> dict[str, str]:
    """Return the settings of a broker with both listeners and a new certificate."""
    issued = upgrade.authority.issue(f"broker-{node.id}", HOST, common_name=f"broker-{node.id}")
    return listener_settings(node.port, upgrade.ports[node.id], issued.both, upgrade.authority.file)


def only_secured(upgrade: Upgrade, node: Node) -> dict[str, str]:
    """Return the settings of a broker without the plain listener."""
    address = f"{LISTENER}://{HOST}:{upgrade.ports[node.id]}"
    return {
        "listeners": address,
        "advertised.listeners": address,
        "listener.security.protocol.map": f"{LISTENER}:SASL_SSL",
    }


async def by_admin(bootstrap: str, work: Callable[[Admin], Awaitable[None]]) -> None:
    """Run `work` with an admin client on the listener without logins."""
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await work(admin)


def move_own_clients(upgrade: Upgrade) -> None:
    """Make the test use the new listener from here on."""
    cluster = upgrade.cluster
    for node in cluster.brokers:
        node.entry["port"] = upgrade.ports[node.id]
    cluster.description["bootstrap"] = upgrade.secured
    cluster.reached_by = upgrade.access(ADMIN, ADMIN_PASSWORD).options


def check(upgrade: Upgrade, theirs: Sequence[Load], ours: Sequence[OwnLoad]) -> None:
    """Check that no send failed, and that every acknowledged record is there once."""
    assert [load.failed for load in theirs] == [[]] * len(theirs)
    assert [load.failed for load in ours] == [[]] * len(ours)
    read = read_all(upgrade.secured, TOPIC, 60, upgrade.access(APP, APP_PASSWORD).settings)
    sent = set[bytes]().union(*(load.sent for load in theirs), *(load.sent for load in ours))
    assert {record.value for record in read} == sent
    for load in theirs:
        load.check([record for record in read if record.value in load.sent])
    for own in ours:
        own.check(read)


async def refused_to_others(upgrade: Upgrade) -> None:
    """Check that clients without a login, and requests without an ACL, are refused."""
    with pytest.raises(AuthenticationFailed):
        async with Admin(bootstrap_servers=upgrade.secured, **upgrade.access(APP, "guessed").options):
            pass
    async with Admin(bootstrap_servers=upgrade.secured, **upgrade.access(APP, APP_PASSWORD).options) as app:
        with pytest.raises(AuthorizationFailed):
            await app.create_topics([NewTopic("another", 1)])
