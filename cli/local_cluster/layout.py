"""The folder of `ottla up`: ids, ports, the secrets, and a settings file for each node.

DIR/layout.json        ids and ports; the same in every run on this folder
DIR/cluster.secret     shared by the nodes, readable by the owner alone
DIR/quorum.secret      shared by the quorum nodes, readable by the owner alone
DIR/config/*.properties    rewritten by every run
DIR/broker-1/, DIR/quorum-101/    the data of each node
DIR/logs/*.log         log lines of the nodes, and of this command where `ottla.testing` runs it
DIR/console.log        log lines of `--console`
DIR/run/*.pid          written by a node while it runs
DIR/up.lock            held by the `ottla up` that runs the cluster
DIR/cluster.json       the running cluster, for scripts
DIR/tls/, DIR/client/  only in a secured cluster: see `security`
"""

from __future__ import annotations

import glob
import json
import os
import secrets
import shutil
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ...network.addresses import host_port
from ...protocol.settings.security_protocol import SecurityProtocol
from ..failures import CommandFailed, UsageError
from ..files import write_atomically
from ..nodes.java_properties import written
from ..terminal.text import counted
from .client_address import KEYS_OF_TWO_LISTENERS, ClientAddress, changed
from .ports import HOST, free_ports, reserve
from .security import ClusterSecurity

LAYOUT_FILE = "layout.json"
CONSOLE_LOG = "console.log"
CONSOLE_FILES = ("console.json", "console.token")
"""The files with the address and the token of the console."""
FIRST_BROKER_ID = 1
FIRST_QUORUM_ID = 101
OWN_KEYS = (
    "node.id",
    "broker.id",
    "cluster.id",
    "cluster.secret.file",
    "quorum.secret.file",
    "controller.quorum.voters",
    "log.dirs",
    "log.dir",
    "metadata.log.dir",
    "process.roles",
    "listeners",
    "advertised.listeners",
    "controller.listener.names",
    "metrics.listener",
)
"""Settings that `ottla up` determines itself for each node."""
QUORUM_PORT_DISTANCE = 100
METRICS_PORT_DISTANCE = 200
LOCAL_PORT_DISTANCE = 400
PORTS_FROM_BASE = 500
"""The number of ports that a base port P takes.

Brokers listen on P, P + 1, ... and quorum nodes on P + 100, P + 101, ...; the HTTP endpoint of each node is 200 above.
If brokers have a second listener on loopback, it is 400 above the first.
"""


@dataclass(frozen=True, slots=True)
class Member:
    """A node of the local cluster with its ports; `role` is `broker` or `quorum`."""

    role: str
    id: int
    port: int
    metrics_port: int
    local_port: int = 0
    """The port of a broker's second listener, on loopback; 0 if it never had such a listener."""

    @property
    def name(self) -> str:
        """The node's name in file names and messages: `broker-1`, `quorum-101`."""
        return f"{self.role}-{self.id}"


@dataclass(frozen=True, slots=True)
class FolderContents:
    """The content of a cluster's folder before a run: the text of its layout file, if there is one, and all file
    names."""

    layout: str | None
    names: frozenset[str]


@dataclass(slots=True)
class ClusterLayout:
    """The members of a local cluster and the paths of their files in its folder."""

    directory: Path
    cluster_id: str
    quorum: list[Member] = field(default_factory=list)
    brokers: list[Member] = field(default_factory=list)
    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    """The security protocol of clients."""
    client_address: ClientAddress = field(default_factory=ClientAddress)
    """The address on which brokers listen for clients, and the name that clients dial."""
    reserved: list[socket.socket] = field(default_factory=list, compare=False, repr=False)
    """Sockets that reserve the ports: no other `ottla up` chooses these ports while they are open, even if a node is
    down."""

    @property
    def members(self) -> list[Member]:
        """All nodes of the cluster, quorum nodes first."""
        return self.quorum + self.brokers

    @property
    def bootstrap(self) -> str:
        """The brokers' addresses in the form of a client's `bootstrap.servers`: `host:port`, separated by commas."""
        return ",".join(self.client_address.address(member.port) for member in self.brokers)

    @property
    def local_bootstrap(self) -> str:
        """The brokers' addresses for clients on this machine. They hold wherever the name that clients dial leads."""
        return ",".join(host_port(HOST, self.loopback_port(member)) for member in self.brokers)

    @property
    def own_keys(self) -> tuple[str, ...]:
        """The settings that `ottla up` determines itself for each node of this cluster."""
        return OWN_KEYS + (KEYS_OF_TWO_LISTENERS if self.client_address.has_local_listener else ())

    def loopback_port(self, member: Member) -> int:
        """Return the port at which this machine itself reaches a node."""
        is_second = member.role == "broker" and self.client_address.has_local_listener
        return member.local_port if is_second else member.port

    def addresses(self, member: Member) -> Iterator[tuple[str, int]]:
        """Yield host and port of each address on which a node listens."""
        yield (self.client_address.listen if member.role == "broker" else HOST, member.port)
        yield (HOST, member.metrics_port)
        if self.loopback_port(member) != member.port:
            yield (HOST, self.loopback_port(member))

    @property
    def voters(self) -> str:
        """The quorum nodes in the form of `controller.quorum.voters`: `id@host:port`, separated by commas."""
        return ",".join(f"{member.id}@{HOST}:{member.port}" for member in self.quorum)

    @property
    def secret_file(self) -> Path:
        """The file with the secret that proves membership in the cluster."""
        return self.directory / "cluster.secret"

    @property
    def quorum_secret_file(self) -> Path:
        """The file with the secret that quorum nodes prove to each other."""
        return self.directory / "quorum.secret"

    @property
    def security(self) -> ClusterSecurity | None:
        """The security settings of the local cluster; None for a cluster without security."""
        if self.protocol is SecurityProtocol.PLAINTEXT:
            return None
        return ClusterSecurity(self.directory, self.protocol)

    @property
    def is_formed(self) -> bool:
        """True if the quorum holds a formed cluster, including its first users."""
        from ..nodes.first_users import is_formed

        return any(is_formed(self.directory / member.name) for member in self.quorum)

    @property
    def cluster_file(self) -> Path:
        """The file that describes the running cluster for scripts."""
        return self.directory / "cluster.json"

    def settings_file(self, member: Member) -> Path:
        """Return the path of a node's properties file."""
        return self.directory / "config" / f"{member.name}.properties"

    def log_file(self, member: Member) -> Path:
        """Return the path of the file with a node's standard output and error."""
        return self.directory / "logs" / f"{member.name}.log"

    def pid_file(self, member: Member) -> Path:
        """Return the path of the file with a running node's process id."""
        return self.directory / "run" / f"{member.name}.pid"

    def running(self, member: Member) -> int | None:
        """Return the process id in the node's pid file if that process runs this very node, else None.

        The process must have the node's settings file in its command or, when forked by `ottla up`, write to the node's
        log.
        """
        try:
            pid = int(self.pid_file(member).read_text())
            command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if os.fsencode(self.settings_file(member)) in command:
                return pid
            return pid if os.path.samefile(f"/proc/{pid}/fd/1", self.log_file(member)) else None
        except (OSError, ValueError):
            return None

    def settings(self, member: Member, overrides: Mapping[str, str]) -> dict[str, str]:
        """Return the properties of a node of the cluster; `overrides` replace its values."""
        settings = {
            "node.id": str(member.id),
            "cluster.id": self.cluster_id,
            "cluster.secret.file": str(self.secret_file),
            "controller.quorum.voters": self.voters,
            "log.dirs": str(self.directory / member.name),
            "metrics.listener": f"{HOST}:{member.metrics_port}",
        }
        if self.security is not None:
            settings |= self.security.settings(member.role, member.name)
        if member.role == "broker":
            replicas = min(3, len(self.brokers))
            settings |= {
                "process.roles": "broker",
                **self.client_address.listeners(self.protocol, member.port, member.local_port),
                "offsets.topic.replication.factor": str(replicas),
                "default.replication.factor": str(replicas),
            }
        else:
            settings |= {
                "process.roles": "controller",
                "listeners": f"CONTROLLER://{HOST}:{member.port}",
                "quorum.secret.file": str(self.quorum_secret_file),
            }
        return {**settings, **overrides}

    def write(self, overrides: Mapping[str, str]) -> list[str]:
        """Write the layout file, the secrets (once) and every node's settings file with the `overrides`.

        Returns the names of the brokers whose certificate was replaced.
        """
        for name in ("config", "logs", "run"):
            (self.directory / name).mkdir(exist_ok=True)
        write_atomically(self.directory / LAYOUT_FILE, json.dumps(_as_json(self), indent=1) + "\n")
        for file in (self.secret_file, self.quorum_secret_file):
            if not file.exists():
                write_atomically(file, secrets.token_hex(32) + "\n", mode=0o600)
        replaced: list[str] = []
        if self.security is not None:
            brokers = [member.name for member in self.brokers]
            replaced = self.security.issue(brokers, self.client_address.names, self.cluster_id)
            self.security.write_client_files(self.bootstrap, is_formed=self.is_formed)
        for member in self.members:
            text = written(self.settings(member, overrides))
            write_atomically(self.settings_file(member), text, mode=0o600)
        return replaced

    def found(self) -> FolderContents:
        """Return the present content of the cluster's folder, for `restore`."""
        file = self.directory / LAYOUT_FILE
        return FolderContents(
            file.read_text() if file.exists() else None,
            frozenset(path.name for path in self.directory.iterdir()),
        )

    def restore(self, found: FolderContents) -> None:
        """Restore the layout file that the cluster's folder had before a run.

        If the folder had none, remove all files that this cluster wrote. A folder that no longer exists stays away.
        """
        if not self.directory.exists():
            return
        if found.layout is None:
            self.remove(keep=found.names)
            self.directory.mkdir(exist_ok=True)
        else:
            write_atomically(self.directory / LAYOUT_FILE, found.layout)

    def remove(self, keep: frozenset[str] = frozenset()) -> None:
        """Delete the cluster with all its data, except for names in `keep`, and the folder if it is then empty.

        Files of other programs in these folders stay.
        """
        for member in self.members:
            if member.name not in keep:
                shutil.rmtree(self.directory / member.name, ignore_errors=True)
        files = [file for file in self._files() if file.relative_to(self.directory).parts[0] not in keep]
        for file in files:
            for path in (file, *file.parent.glob(f"{glob.escape(file.name)}.*.part")):
                path.unlink(missing_ok=True)
        for folder in (*dict.fromkeys(file.parent for file in files), self.directory):
            with suppress(OSError):
                folder.rmdir()

    def _files(self) -> Iterator[Path]:
        """Yield all files of the cluster beside the nodes' data; the files that mark the folder's owner come last."""
        for member in self.members:
            yield from (self.settings_file(member), self.log_file(member), self.pid_file(member))
        yield self.directory / "logs" / "up.log"
        yield from ClusterSecurity(self.directory, self.protocol).files(
            broker.name for broker in self.brokers
        )
        yield from (self.directory / name for name in (CONSOLE_LOG, *CONSOLE_FILES))
        for name in (LAYOUT_FILE, "cluster.secret", "quorum.secret", "cluster.json", "up.lock"):
            yield self.directory / name


def open_layout(
    directory: Path,
    *,
    quorum: int | None,
    brokers: int | None,
    base_port: int | None,
    protocol: SecurityProtocol | None = None,
    listen: str | None = None,
    advertise: str | None = None,
) -> ClusterLayout:
    """Return the layout of `directory`: the choice of an earlier run, or a new layout with free ports.

    A base port moves all nodes to other ports, which is safe because stored data names nodes by id. `listen` and
    `advertise` move the brokers to another address. Raises UsageError if the folder holds a quorum of another size, has
    other security, or holds more brokers than asked for, and for an address without security. Raises CommandFailed if
    no port is free.
    """
    known = _read(directory) or ClusterLayout(directory, secrets.token_urlsafe(16))
    if known.quorum and quorum not in (None, len(known.quorum)):
        raise UsageError(
            f"{directory} holds {counted(len(known.quorum), 'quorum node')}: give --quorum {len(known.quorum)}"
        )
    if known.brokers and brokers is not None and brokers < len(known.brokers):
        raise UsageError(
            f"{directory} holds {counted(len(known.brokers), 'broker')}: give --brokers {len(known.brokers)} or more"
        )
    if protocol is not None:
        if known.quorum and protocol is not known.protocol:
            raise UsageError(_secured_otherwise(directory, known.protocol, protocol))
        known.protocol = protocol
    known.client_address = changed(known.client_address, listen, advertise, known.protocol)
    known.client_address.check(known.protocol)
    _assign_ports(known, quorum, brokers, base_port)
    return known


def _assign_ports(
    known: ClusterLayout, quorum: int | None, brokers: int | None, base_port: int | None
) -> None:
    """Add missing nodes to the layout, and give each node its ports: the known ports, or new ones."""
    if base_port is not None:
        known.quorum = [
            _moved(member, base_port + QUORUM_PORT_DISTANCE, FIRST_QUORUM_ID) for member in known.quorum
        ]
        known.brokers = [_moved(member, base_port, FIRST_BROKER_ID) for member in known.brokers]
    taken = [port for member in known.members for _, port in known.addresses(member) if port]
    known.reserved += [own for port in taken if (own := reserve(port))]
    free = free_ports(known.reserved, known.client_address.hosts())
    for group in (known.quorum, known.brokers):
        group[:] = [m if m.metrics_port else replace(m, metrics_port=next(free)) for m in group]
    wanted_quorum = len(known.quorum) or (3 if quorum is None else quorum)
    for index in range(len(known.quorum), wanted_quorum):
        ports = _ports(free, None if base_port is None else base_port + QUORUM_PORT_DISTANCE + index)
        known.quorum.append(Member("quorum", FIRST_QUORUM_ID + index, *ports))
    wanted_brokers = brokers if brokers is not None else len(known.brokers) or 3
    for index in range(len(known.brokers), wanted_brokers):
        ports = _ports(free, None if base_port is None else base_port + index)
        known.brokers.append(Member("broker", FIRST_BROKER_ID + index, *ports))
    if known.client_address.has_local_listener:
        known.brokers = [
            broker if broker.local_port else replace(broker, local_port=_local_port(free, broker, base_port))
            for broker in known.brokers
        ]
    free.close()


def _secured_otherwise(directory: Path, known: SecurityProtocol, wanted: SecurityProtocol) -> str:
    if known is SecurityProtocol.PLAINTEXT:
        return (
            f"{directory} holds a cluster that is not secured: --secure is for a new one, so give another --data. "
            "docs/SECURITY-GUIDE.md tells how a cluster with data is secured, step by step"
        )
    return (
        f"{directory} holds a cluster whose clients speak {known.value}, not {wanted.value}: leave out --secure, and "
        "it stays as it is"
    )


def _moved(member: Member, first_port: int, first_id: int) -> Member:
    port = first_port + member.id - first_id
    return replace(member, port=port, metrics_port=port + METRICS_PORT_DISTANCE, local_port=0)


def _local_port(free: Iterator[int], broker: Member, base_port: int | None) -> int:
    return next(free) if base_port is None else broker.port + LOCAL_PORT_DISTANCE


def _ports(free: Iterator[int], port: int | None) -> tuple[int, int]:
    """Return the ports of a node and of its HTTP endpoint: `port` and the port METRICS_PORT_DISTANCE above it, or two
    free ports if `port` is None."""
    return (next(free), next(free)) if port is None else (port, port + METRICS_PORT_DISTANCE)


def known_layout(directory: Path) -> ClusterLayout:
    """Return the layout that an `ottla up` left in `directory`. Raises CommandFailed if there is none."""
    known = _read(directory)
    if known is None:
        raise CommandFailed(f"{directory} holds no cluster; 'ottla up --data {directory}' makes one")
    return known


def holds_cluster(directory: Path) -> bool:
    """Return whether `directory` holds a cluster of `ottla up`."""
    return (directory / LAYOUT_FILE).exists()


def _read(directory: Path) -> ClusterLayout | None:
    file = directory / LAYOUT_FILE
    try:
        return _from_json(directory, json.loads(file.read_text()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CommandFailed(f"cannot use {file}: {error}") from None


def _as_json(layout: ClusterLayout) -> dict[str, Any]:
    members = {"quorum": layout.quorum, "brokers": layout.brokers}
    security = {} if layout.security is None else {"security": layout.protocol.value}
    address = (
        {} if layout.client_address == ClientAddress() else {"client_address": asdict(layout.client_address)}
    )
    return (
        {"cluster_id": layout.cluster_id}
        | security
        | address
        | {name: [asdict(member) for member in group] for name, group in members.items()}
    )


def _from_json(directory: Path, raw: Mapping[str, Any]) -> ClusterLayout:
    no_endpoint = {"metrics_port": 0}  # Layouts of the first versions have no metrics ports.
    quorum = [Member(**(no_endpoint | entry)) for entry in raw["quorum"]]
    brokers = [Member(**(no_endpoint | entry)) for entry in raw["brokers"]]
    protocol = SecurityProtocol(raw.get("security", SecurityProtocol.PLAINTEXT))
    client_address = ClientAddress(**raw.get("client_address", {}))
    return ClusterLayout(directory, raw["cluster_id"], quorum, brokers, protocol, client_address)
