"""Brokers whose clients log in over TLS, and whose certificates, users and rights change under load.

Every broker has two listeners. PLAINTEXT is for the test alone, which has all rights there. Clients and other brokers
use SECURED.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ottla import Acl, Admin, UserPassword
from ottla.cli.local_cluster.layout import ClusterLayout, Member
from ottla.cli.local_cluster.ports import free_ports
from ottla.protocol.cluster.acls import AclOperation, AclPermission, AclResourceType, PatternType
from ottla.protocol.cluster.authorizer_settings import STANDARD_AUTHORIZER
from ottla.protocol.credentials.scram import DEFAULT_MECHANISM
from ottla.testing.nodes import Node
from tests.certificates import Authority, Issued
from tests.faults.node_cluster import NodeCluster, node_cluster
from tests.faults.own_load import OwnLoad
from tests.integration.history import SMALL_CLUSTER, Load, make_topic, read_all

HOST = "127.0.0.1"
LISTENER = "SECURED"
ANYBODY = "User:ANONYMOUS"
RELOAD_MS = 500
PARTITIONS, PER_SECOND = 3, 150
UNIT = "brokers"


@dataclass(frozen=True)
class Access:
    """The trust file and the login of a client."""

    ca_file: Path
    user: str
    password: str

    @property
    def options(self) -> dict[str, Any]:
        """Options for Ottla's client."""
        return {
            "security_protocol": "SASL_SSL",
            "ssl_cafile": self.ca_file,
            "sasl_mechanism": DEFAULT_MECHANISM,
            "sasl_plain_username": self.user,
            "sasl_plain_password": self.password,
        }

    @property
    def settings(self) -> dict[str, Any]:
        """Settings for librdkafka."""
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.ca_file),
            "sasl.mechanism": DEFAULT_MECHANISM,
            "sasl.username": self.user,
            "sasl.password": self.password,
        }


def listener_settings(plain_port: int, secured_port: int, key_file: Path, ca_file: Path) -> dict[str, str]:
    """Return the settings of a broker with both listeners, whose followers use the plain one."""
    both = f"PLAINTEXT://{HOST}:{plain_port},{LISTENER}://{HOST}:{secured_port}"
    return {
        "listeners": both,
        "advertised.listeners": both,
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,{LISTENER}:SASL_SSL",
        "inter.broker.listener.name": "PLAINTEXT",
        f"listener.name.{LISTENER.lower()}.sasl.enabled.mechanisms": DEFAULT_MECHANISM,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(key_file),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(ca_file),
    }


def may_do_all(user: str, topic: str) -> list[Acl]:
    """Return ACLs by which a user writes to a topic and reads it, in any group."""
    kinds = [(AclResourceType.TOPIC, topic), (AclResourceType.GROUP, "*")]
    return [
        Acl(kind, name, PatternType.LITERAL, f"User:{user}", "*", AclOperation.ALL, AclPermission.ALLOW)
        for kind, name in kinds
    ]


@dataclass
class SecuredCluster:
    """A cluster, and the files with its brokers' certificates and trusted authorities."""

    cluster: NodeCluster
    authority: Authority
    folder: Path
    ports: dict[int, int]
    """Ports of the TLS listeners, by broker."""

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self.ports.values())

    @property
    def trusted(self) -> Path:
        """File of the authorities that brokers trust."""
        return self.folder / "trusted.pem"

    def key_file(self, broker_id: int) -> Path:
        return self.folder / f"own-{broker_id}.pem"

    def access(self, user: str, password: str, ca_file: Path | None = None) -> Access:
        return Access(ca_file or self.authority.file, user, password)

    def issue(self, broker_id: int, authority: Authority | None = None, **validity: float) -> Issued:
        """Issue a certificate for a broker under its usual name."""
        name = f"broker-{broker_id}"
        return (authority or self.authority).issue(name, HOST, common_name=name, unit=UNIT, **validity)

    def as_admin(self, work: Callable[[Admin], Awaitable[Any]]) -> Any:
        """Run `work` with an admin client that has all rights."""

        async def run() -> Any:
            async with Admin(bootstrap_servers=self.cluster.bootstrap) as admin:
                return await work(admin)

        return asyncio.run(run())

    def add_user(self, access: Access, topic: str) -> None:
        """Add a user with all rights to a topic."""

        async def add(admin: Admin) -> None:
            await admin.alter_scram_credentials([UserPassword(access.user, access.password)])
            await admin.create_acls(may_do_all(access.user, topic))

        self.as_admin(add)

    def metric(self, node: Node, name: str) -> float:
        """Return the first sample of a metric."""
        address = f"http://{HOST}:{self.cluster.member(node).metrics_port}/metrics"
        with urllib.request.urlopen(address, timeout=5) as answer:
            for line in answer.read().decode().splitlines():
                if line.startswith((f"{name} ", f"{name}{{")):
                    return float(line.split()[-1])
        raise AssertionError(f"no metric {name}")


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file atomically, as programs that renew certificates do."""
    part = path.with_suffix(".part")
    part.write_bytes(content)
    os.replace(part, path)


@contextmanager
def secured_cluster(directory: Path) -> Iterator[SecuredCluster]:
    """Run three quorum nodes and three brokers, which follow each other over TLS and check their
    files twice a second.
    """
    authority = Authority(directory / "authority")
    ports: dict[int, int] = {}
    folder = directory / "files"
    folder.mkdir(parents=True)
    shutil.copy(authority.file, folder / "trusted.pem")

    def own(layout: ClusterLayout, member: Member) -> dict[str, str]:
        if member.role != "broker":
            return {}
        ports[member.id] = next(free_ports(layout.reserved))
        name = f"broker-{member.id}"
        key_file = folder / f"own-{member.id}.pem"
        shutil.copy(authority.issue(name, HOST, common_name=name, unit=UNIT).both, key_file)
        between = {"inter.broker.listener.name": LISTENER}
        return listener_settings(member.port, ports[member.id], key_file, folder / "trusted.pem") | between

    settings = SMALL_CLUSTER | {
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": ANYBODY,
        "ssl.reload.interval.ms": str(RELOAD_MS),
    }
    with node_cluster(directory / "cluster", settings=settings, own=own) as cluster:
        yield SecuredCluster(cluster, authority, folder, ports)


class Loads:
    """Producers of confluent-kafka and of Ottla on a topic, by a user with all rights to it. No send may fail.

    `leaving` are loads that lose their rights meanwhile, and keep their acknowledged records.
    """

    def __init__(self, secured: SecuredCluster, topic: str, ca_file: Path | None = None) -> None:
        self.secured, self.topic = secured, topic
        self.access = secured.access(f"user-{topic}", "a long secret", ca_file)
        self.leaving: list[OwnLoad] = []
        make_topic(secured.cluster.bootstrap, topic, PARTITIONS, min_insync_replicas=2)
        secured.cluster.topics = [topic]
        secured.add_user(self.access, topic)
        settings = self.access.settings | {"message.timeout.ms": "60000"}
        self.theirs = Load(secured.bootstrap, topic, PER_SECOND, settings=settings)
        self.ours = self.own("ours", self.access)

    def own(self, name: str, access: Access) -> OwnLoad:
        """Return another load with Ottla's producer."""
        return OwnLoad(self.secured.bootstrap, self.topic, name, PER_SECOND, **access.options)

    def __enter__(self) -> Self:
        self.theirs.__enter__()
        self.ours.__enter__()
        self.go_on()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.go_on()
        self.ours.__exit__(kind, error, trace)
        self.theirs.__exit__(kind, error, trace)
        if error is None:
            self._check()

    def go_on(self) -> None:
        """Return once both loads have more acknowledgements."""
        self.theirs.wait_acknowledged(50, 60)
        self.ours.wait_acknowledged(50, 60)

    def restart_hard(self, *nodes: Node) -> None:
        """Kill nodes by SIGKILL and start them with the current files, so that all their connections are new."""
        for node in nodes:
            node.kill9()
            self.go_on()
            node.restart()
            self.secured.cluster.wait_whole()
            self.go_on()

    def _check(self) -> None:
        assert (self.theirs.failed, self.ours.failed) == ([], [])
        read = read_all(self.secured.cluster.bootstrap, self.topic)
        sent = self.theirs.sent | self.ours.sent
        found = {record.value for record in read}
        assert sent <= found <= sent.union(*(load.sent for load in self.leaving))
        self.theirs.check([record for record in read if record.value in self.theirs.sent])
        for load in (self.ours, *self.leaving):
            load.check(read)
