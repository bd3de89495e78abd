"""Brokers whose clients log in over TLS, and whose certificates, users and rights are changed while they work.

Every broker has two listeners. PLAINTEXT is for the test alone, which may do everything there. By SECURED clients and
the other brokers come.
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
from typing import Any

from ottla import Acl, Admin, UserPassword
from ottla.cli.local_cluster.layout import ClusterLayout, Member
from ottla.cli.local_cluster.ports import free_ports
from ottla.client.admin.users import DEFAULT_MECHANISM
from ottla.protocol.acls import AclOperation, AclPermission, AclResourceType, PatternType
from ottla.protocol.authorizer_settings import STANDARD_AUTHORIZER
from ottla.testing.nodes import Node
from tests.certificates import Authority, Issued
from tests.faults.node_cluster import NodeCluster, node_cluster
from tests.integration.history import SMALL_CLUSTER

HOST = "127.0.0.1"
LISTENER = "SECURED"
ANYBODY = "User:ANONYMOUS"
RELOAD_MS = 500


@dataclass(frozen=True)
class Access:
    """What a client needs to get in: whom it trusts, and who it is."""

    ca_file: Path
    user: str
    password: str

    @property
    def options(self) -> dict[str, Any]:
        """Of our clients."""
        return {
            "security_protocol": "SASL_SSL",
            "ssl_cafile": self.ca_file,
            "sasl_mechanism": DEFAULT_MECHANISM,
            "sasl_plain_username": self.user,
            "sasl_plain_password": self.password,
        }

    @property
    def settings(self) -> dict[str, Any]:
        """Of librdkafka."""
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.ca_file),
            "sasl.mechanism": DEFAULT_MECHANISM,
            "sasl.username": self.user,
            "sasl.password": self.password,
        }


def listener_settings(plain_port: int, secured_port: int, key_file: Path, ca_file: Path) -> dict[str, str]:
    """Of a broker with both listeners, whose followers come over the plain one."""
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
    """ACLs by which a user writes to a topic and reads it, in any group."""
    kinds = [(AclResourceType.TOPIC, topic), (AclResourceType.GROUP, "*")]
    return [
        Acl(kind, name, PatternType.LITERAL, f"User:{user}", "*", AclOperation.ALL, AclPermission.ALLOW)
        for kind, name in kinds
    ]


@dataclass
class SecuredCluster:
    """The cluster, and the files by which its brokers know and trust."""

    cluster: NodeCluster
    authority: Authority
    folder: Path
    ports: dict[int, int]
    """Of the listeners with TLS, by broker."""

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self.ports.values())

    @property
    def trusted(self) -> Path:
        """The file of the authorities that brokers trust."""
        return self.folder / "trusted.pem"

    def key_file(self, broker_id: int) -> Path:
        return self.folder / f"own-{broker_id}.pem"

    def access(self, user: str, password: str, ca_file: Path | None = None) -> Access:
        return Access(ca_file or self.authority.file, user, password)

    def issue(self, broker_id: int, authority: Authority | None = None, **validity: float) -> Issued:
        """A certificate for a broker, with the name that it always has."""
        name = f"broker-{broker_id}"
        return (authority or self.authority).issue(name, HOST, common_name=name, **validity)

    def as_admin(self, work: Callable[[Admin], Awaitable[Any]]) -> Any:
        """Have someone do it who may do everything."""

        async def run() -> Any:
            async with Admin(bootstrap_servers=self.cluster.bootstrap) as admin:
                return await work(admin)

        return asyncio.run(run())

    def add_user(self, access: Access, topic: str) -> None:
        """One who may do everything with a topic."""

        async def add(admin: Admin) -> None:
            await admin.alter_scram_credentials([UserPassword(access.user, access.password)])
            await admin.create_acls(may_do_all(access.user, topic))

        self.as_admin(add)

    def metric(self, node: Node, name: str) -> float:
        """The first sample of a metric."""
        address = f"http://{HOST}:{self.cluster.member(node).metrics_port}/metrics"
        with urllib.request.urlopen(address, timeout=5) as answer:
            for line in answer.read().decode().splitlines():
                if line.startswith((f"{name} ", f"{name}{{")):
                    return float(line.split()[-1])
        raise AssertionError(f"no metric {name}")


def replace_file(path: Path, content: bytes) -> None:
    """As programs that renew certificates do: never half a file."""
    part = path.with_suffix(".part")
    part.write_bytes(content)
    os.replace(part, path)


@contextmanager
def secured_cluster(directory: Path) -> Iterator[SecuredCluster]:
    """Three quorum nodes and three brokers, which follow each other over TLS and look at their files twice a second."""
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
        shutil.copy(authority.issue(name, HOST, common_name=name).both, key_file)
        between = {"inter.broker.listener.name": LISTENER}
        return listener_settings(member.port, ports[member.id], key_file, folder / "trusted.pem") | between

    settings = SMALL_CLUSTER | {
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": ANYBODY,
        "ssl.reload.interval.ms": str(RELOAD_MS),
    }
    with node_cluster(directory / "cluster", settings=settings, own=own) as cluster:
        yield SecuredCluster(cluster, authority, folder, ports)
