"""What `ottla up` keeps in its folder: ids, ports, the secrets, one settings file per node.

DIR/layout.json        ids and ports; the same in every run on this folder
DIR/cluster.secret     shared by the nodes, readable by the owner alone
DIR/quorum.secret      shared by the quorum nodes, likewise
DIR/config/*.properties    written anew by every run
DIR/broker-1/, DIR/quorum-101/    the data of each node
DIR/logs/*.log         log lines of the nodes, and of this command where `ottla.testing` runs it
DIR/console.log        those of `--console`
DIR/run/*.pid          written by a node while it runs
DIR/up.lock            held by the `ottla up` that runs the cluster
DIR/cluster.json       the running cluster, for scripts
DIR/tls/, DIR/client/  of a cluster that is secured: see `security`
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

from ...protocol.settings.security_protocol import SecurityProtocol
from ..failures import CommandFailed, UsageError
from ..files import write_atomically
from ..nodes.java_properties import written
from .ports import HOST, free_ports, reserve
from .security import ClusterSecurity

LAYOUT_FILE = "layout.json"
CONSOLE_LOG = "console.log"
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
"""What `ottla up` decides itself, node by node."""
QUORUM_PORT_DISTANCE = 100
METRICS_PORT_DISTANCE = 200
PORTS_FROM_BASE = 400
"""With a base port P brokers listen on P, P + 1, ... and quorum nodes on P + 100, P + 101, ...; the HTTP endpoint
of each is 200 above.
"""


@dataclass(frozen=True, slots=True)
class Member:
    """One node of the cluster: `role` is `broker` or `quorum`."""

    role: str
    id: int
    port: int
    metrics_port: int

    @property
    def name(self) -> str:
        """Its name in file names and messages: `broker-1`, `quorum-101`."""
        return f"{self.role}-{self.id}"


@dataclass(frozen=True, slots=True)
class FolderContents:
    """The content of a folder before a run: the text of its layout, if it had one, and all names."""

    layout: str | None
    names: frozenset[str]


@dataclass(slots=True)
class ClusterLayout:
    """The members of a cluster and where their files are."""

    directory: Path
    cluster_id: str
    quorum: list[Member] = field(default_factory=list)
    brokers: list[Member] = field(default_factory=list)
    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    """What clients speak."""
    reserved: list[socket.socket] = field(default_factory=list, compare=False, repr=False)
    """While these are open no other `ottla up` chooses a port of this one, be its node up or down."""

    @property
    def members(self) -> list[Member]:
        """Quorum nodes first, then brokers."""
        return self.quorum + self.brokers

    @property
    def bootstrap(self) -> str:
        """The brokers' addresses as clients take them."""
        return ",".join(f"{HOST}:{member.port}" for member in self.brokers)

    @property
    def voters(self) -> str:
        """The quorum as brokers and quorum nodes take it: `id@host:port` with commas between."""
        return ",".join(f"{member.id}@{HOST}:{member.port}" for member in self.quorum)

    @property
    def secret_file(self) -> Path:
        """The file with the secret that nodes prove to know when they meet."""
        return self.directory / "cluster.secret"

    @property
    def quorum_secret_file(self) -> Path:
        """The file with the secret that quorum nodes prove to know to each other."""
        return self.directory / "quorum.secret"

    @property
    def security(self) -> ClusterSecurity | None:
        """How it is secured; None if it is not."""
        if self.protocol is SecurityProtocol.PLAINTEXT:
            return None
        return ClusterSecurity(self.directory, self.protocol)

    @property
    def is_formed(self) -> bool:
        """Whether the cluster has been formed: its first users, and all that it holds, are in its quorum."""
        from ...metadata_quorum.raft import disk, formation

        folders = [self.directory / member.name for member in self.quorum]
        found = [formation.load(disk.Directory(folder)) for folder in folders if folder.is_dir()]
        return any(one is not None and one.formed for one in found)

    @property
    def cluster_file(self) -> Path:
        """The file that tells scripts about the running cluster."""
        return self.directory / "cluster.json"

    def settings_file(self, member: Member) -> Path:
        """The properties file of a node."""
        return self.directory / "config" / f"{member.name}.properties"

    def log_file(self, member: Member) -> Path:
        """Where standard output and error of a node go."""
        return self.directory / "logs" / f"{member.name}.log"

    def pid_file(self, member: Member) -> Path:
        """Where a running node keeps its process id."""
        return self.directory / "run" / f"{member.name}.pid"

    def running(self, member: Member) -> int | None:
        """The process that the node's pid file names, if it runs this very node: by its command, or as `ottla up` forks
        it, with its output in the node's log."""
        try:
            pid = int(self.pid_file(member).read_text())
            command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if os.fsencode(self.settings_file(member)) in command:
                return pid
            return pid if os.path.samefile(f"/proc/{pid}/fd/1", self.log_file(member)) else None
        except (OSError, ValueError):
            return None

    def settings(self, member: Member, overrides: Mapping[str, str]) -> dict[str, str]:
        """The properties of a node; `overrides` win."""
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
                "listeners": f"{self.protocol.value}://{HOST}:{member.port}",
                "advertised.listeners": f"{self.protocol.value}://{HOST}:{member.port}",
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

    def write(self, overrides: Mapping[str, str]) -> None:
        """Write layout, secrets (once) and every node's settings with the `overrides`."""
        for name in ("config", "logs", "run"):
            (self.directory / name).mkdir(exist_ok=True)
        write_atomically(self.directory / LAYOUT_FILE, json.dumps(_as_json(self), indent=1) + "\n")
        for file in (self.secret_file, self.quorum_secret_file):
            if not file.exists():
                write_atomically(file, secrets.token_hex(32) + "\n", mode=0o600)
        if self.security is not None:
            brokers = [member.name for member in self.brokers]
            self.security.write(brokers, self.bootstrap, self.cluster_id, is_formed=self.is_formed)
        for member in self.members:
            text = written(self.settings(member, overrides))
            write_atomically(self.settings_file(member), text, mode=0o600)

    def found(self) -> FolderContents:
        """What is in the folder now."""
        file = self.directory / LAYOUT_FILE
        return FolderContents(
            file.read_text() if file.exists() else None,
            frozenset(path.name for path in self.directory.iterdir()),
        )

    def restore(self, found: FolderContents) -> None:
        """Let the folder have the layout again that it had. If it had none, all that this cluster has written goes. A
        folder that is gone already stays gone."""
        if not self.directory.exists():
            return
        if found.layout is None:
            self.remove(keep=found.names)
            self.directory.mkdir(exist_ok=True)
        else:
            write_atomically(self.directory / LAYOUT_FILE, found.layout)

    def remove(self, keep: frozenset[str] = frozenset()) -> None:
        """Delete the cluster with all its data, except for these names, and the folder unless something is left. Others
        may have files in folders that it has, too: those stay."""
        for member in self.members:
            if member.name not in keep:
                shutil.rmtree(self.directory / member.name, ignore_errors=True)
        files = [file for file in self._files() if file.relative_to(self.directory).parts[0] not in keep]
        for file in files:
            for one in (file, *file.parent.glob(f"{glob.escape(file.name)}.*.part")):
                one.unlink(missing_ok=True)
        for folder in (*dict.fromkeys(file.parent for file in files), self.directory):
            with suppress(OSError):
                folder.rmdir()

    def _files(self) -> Iterator[Path]:
        """All that stand there beside the data of nodes, those at last that say whose the folder is."""
        for member in self.members:
            yield from (self.settings_file(member), self.log_file(member), self.pid_file(member))
        yield self.directory / "logs" / "up.log"
        yield from ClusterSecurity(self.directory, self.protocol).files(one.name for one in self.brokers)
        yield self.directory / CONSOLE_LOG
        for name in (LAYOUT_FILE, "cluster.secret", "quorum.secret", "cluster.json", "up.lock"):
            yield self.directory / name


def open_layout(
    directory: Path,
    *,
    quorum: int | None,
    brokers: int | None,
    base_port: int | None,
    protocol: SecurityProtocol | None = None,
) -> ClusterLayout:
    """The layout of `directory`: what an earlier run chose, or a new one with ports nobody uses. A base port moves all
    nodes to other ports: what they have stored names nodes by their ids.

    Raises UsageError when the folder holds another quorum than asked for, is secured otherwise, or fewer brokers are
    wanted than it has, and CommandFailed when no port is free.
    """
    known = _read(directory) or ClusterLayout(directory, secrets.token_urlsafe(16))
    if known.quorum and quorum not in (None, len(known.quorum)):
        raise UsageError(
            f"{directory} holds {len(known.quorum)} quorum nodes: give --quorum {len(known.quorum)}"
        )
    if known.brokers and brokers is not None and brokers < len(known.brokers):
        raise UsageError(
            f"{directory} holds {len(known.brokers)} brokers: give --brokers {len(known.brokers)} or more"
        )
    if protocol is not None:
        if known.quorum and protocol is not known.protocol:
            raise UsageError(_secured_otherwise(directory, known.protocol, protocol))
        known.protocol = protocol
    if base_port is not None:
        known.quorum = [
            _moved(one, base_port + QUORUM_PORT_DISTANCE, FIRST_QUORUM_ID) for one in known.quorum
        ]
        known.brokers = [_moved(one, base_port, FIRST_BROKER_ID) for one in known.brokers]
    taken = [port for member in known.members for port in (member.port, member.metrics_port)]
    known.reserved += [own for port in taken if (own := reserve(port))]
    free = free_ports(known.reserved)
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
    free.close()
    return known


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
    return replace(member, port=port, metrics_port=port + METRICS_PORT_DISTANCE)


def _ports(free: Iterator[int], port: int | None) -> tuple[int, int]:
    """The ports of a member and of its HTTP endpoint."""
    return (next(free), next(free)) if port is None else (port, port + METRICS_PORT_DISTANCE)


def known_layout(directory: Path) -> ClusterLayout:
    """The layout that an `ottla up` left in `directory`. Raises CommandFailed when there is none."""
    known = _read(directory)
    if known is None:
        raise CommandFailed(f"{directory} holds no cluster; 'ottla up --data {directory}' makes one")
    return known


def holds_cluster(directory: Path) -> bool:
    """Whether an `ottla up` has left a cluster in `directory`."""
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
    return (
        {"cluster_id": layout.cluster_id}
        | security
        | {name: [asdict(member) for member in group] for name, group in members.items()}
    )


def _from_json(directory: Path, raw: Mapping[str, Any]) -> ClusterLayout:
    no_endpoint = {"metrics_port": 0}  # as the first versions wrote it
    quorum = [Member(**(no_endpoint | entry)) for entry in raw["quorum"]]
    brokers = [Member(**(no_endpoint | entry)) for entry in raw["brokers"]]
    protocol = SecurityProtocol(raw.get("security", SecurityProtocol.PLAINTEXT))
    return ClusterLayout(directory, raw["cluster_id"], quorum, brokers, protocol)
