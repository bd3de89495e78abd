"""What `ottla up` keeps in its folder: ids, ports, the cluster secret, one settings file per node.

DIR/layout.json        ids and ports; the same in every run on this folder
DIR/cluster.secret     shared by the nodes, readable by the owner alone
DIR/config/*.properties    written anew by every run
DIR/broker-1/, DIR/quorum-101/    the data of each node
DIR/logs/*.log         what the nodes said
DIR/run/*.pid          written by a node while it runs
DIR/up.lock            held by the `ottla up` that runs the cluster
DIR/cluster.json       the running cluster, for scripts
"""

from __future__ import annotations

import json
import os
import random
import secrets
import shutil
import socket
import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from .failures import CommandFailed, UsageError

HOST = "127.0.0.1"
FIRST_BROKER_ID = 1
FIRST_QUORUM_ID = 101
OWN_KEYS = (
    "node.id",
    "broker.id",
    "cluster.id",
    "cluster.secret.file",
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

OUTGOING_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
LOWEST_DYNAMIC_PORT = 49152
"""Where outgoing connections begin by RFC 6335, where the system does not say."""
LOWEST_PORT, HIGHEST_PORT = 10_000, 65_535
PORTS_TO_CHOOSE_FROM = 1_000


@dataclass(frozen=True, slots=True)
class Member:
    """One node of the cluster: `role` is ``broker`` or ``quorum``."""

    role: str
    id: int
    port: int
    metrics_port: int

    @property
    def name(self) -> str:
        """Its name in file names and messages: ``broker-1``, ``quorum-101``."""
        return f"{self.role}-{self.id}"


@dataclass(slots=True)
class Layout:
    """The members of a cluster and where their files are."""

    directory: Path
    cluster_id: str
    quorum: list[Member] = field(default_factory=list)
    brokers: list[Member] = field(default_factory=list)
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
        """The quorum as brokers and quorum nodes take it: ``id@host:port`` with commas between."""
        return ",".join(f"{member.id}@{HOST}:{member.port}" for member in self.quorum)

    @property
    def secret_file(self) -> Path:
        """The file with the secret that nodes prove to know when they meet."""
        return self.directory / "cluster.secret"

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
        if member.role == "broker":
            replicas = min(3, len(self.brokers))
            settings |= {
                "process.roles": "broker",
                "listeners": f"PLAINTEXT://{HOST}:{member.port}",
                "advertised.listeners": f"PLAINTEXT://{HOST}:{member.port}",
                "offsets.topic.replication.factor": str(replicas),
                "default.replication.factor": str(replicas),
            }
        else:
            settings |= {"process.roles": "controller", "listeners": f"CONTROLLER://{HOST}:{member.port}"}
        return {**settings, **overrides}

    def write(self, overrides: Mapping[str, str]) -> None:
        """Write layout, secret (once) and every node's settings with the `overrides`."""
        for name in ("config", "logs", "run"):
            (self.directory / name).mkdir(exist_ok=True)
        write_atomically(self.directory / "layout.json", json.dumps(_as_json(self), indent=1) + "\n")
        if not self.secret_file.exists():
            write_atomically(self.secret_file, secrets.token_hex(32) + "\n", mode=0o600)
        for member in self.members:
            lines = (f"{key}={value}\n" for key, value in self.settings(member, overrides).items())
            write_atomically(self.settings_file(member), "".join(lines))

    def remove(self) -> None:
        """Delete the cluster with all its data, and the folder unless others keep something there."""
        for name in ("config", "logs", "run", *(member.name for member in self.members)):
            shutil.rmtree(self.directory / name, ignore_errors=True)
        for name in ("layout.json", "cluster.secret", "cluster.json", "up.lock"):
            (self.directory / name).unlink(missing_ok=True)
        with suppress(OSError):
            self.directory.rmdir()


def open_layout(directory: Path, *, quorum: int | None, brokers: int | None, base_port: int | None) -> Layout:
    """The layout of `directory`: what an earlier run chose, or a new one with ports nobody uses.

    Raises UsageError when the folder holds another quorum than asked for or fewer brokers are wanted than it
    has, and CommandFailed when no port is free.
    """
    known = _read(directory) or Layout(directory, secrets.token_urlsafe(16))
    if known.quorum and quorum not in (None, len(known.quorum)):
        raise UsageError(
            f"{directory} holds {len(known.quorum)} quorum nodes: give --quorum {len(known.quorum)}"
        )
    if known.brokers and brokers is not None and brokers < len(known.brokers):
        raise UsageError(
            f"{directory} holds {len(known.brokers)} brokers: give --brokers {len(known.brokers)} or more"
        )
    if known.quorum and base_port is not None and base_port != known.brokers[0].port:
        raise UsageError(f"{directory} has its ports from an earlier run: leave --base-port out")
    taken = [port for member in known.members for port in (member.port, member.metrics_port)]
    known.reserved += [own for port in taken if (own := _reserve(port))]
    free = _free_ports(known.reserved)
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


def _ports(free: Iterator[int], port: int | None) -> tuple[int, int]:
    """The ports of a member and of its HTTP endpoint."""
    return (next(free), next(free)) if port is None else (port, port + METRICS_PORT_DISTANCE)


def known_layout(directory: Path) -> Layout:
    """The layout that an `ottla up` left in `directory`. Raises CommandFailed when there is none."""
    known = _read(directory)
    if known is None:
        raise CommandFailed(f"{directory} holds no cluster; 'ottla up --data {directory}' makes one")
    return known


def write_atomically(path: Path, text: str, mode: int = 0o644) -> None:
    """Replace `path` by `text` so that a reader sees the old file or the whole new one."""
    part = path.with_name(path.name + ".part")
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="utf-8") as file:
        file.write(text)
    part.replace(path)


def _read(directory: Path) -> Layout | None:
    file = directory / "layout.json"
    try:
        return _from_json(directory, json.loads(file.read_text()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CommandFailed(f"cannot use {file}: {error}") from None


def _free_ports(reserved: list[socket.socket]) -> Generator[int, None, None]:
    """Ports free for both TCP and UDP on loopback, all different: each stays bound until the iterator
    closes, and reserved after that. None of them is given to outgoing connections, which would keep a node from
    starting again. Raises CommandFailed when there are no more.
    """
    held: list[socket.socket] = []
    try:
        for port in _candidate_ports():
            stream = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            datagram = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            if _can_bind(stream.bind, port) and _can_bind(datagram.bind, port) and (own := _reserve(port)):
                held += [stream, datagram]
                reserved.append(own)
                yield port
            else:
                stream.close()
                datagram.close()
        raise CommandFailed(f"no free port for the cluster's nodes on {HOST}: all of them are in use")
    finally:
        for one in held:
            one.close()


def _candidate_ports() -> list[int]:
    """Where a server may listen, in an order that differs from run to run, so that few try the same."""
    ports = _ports_of_servers()
    return random.sample(ports, len(ports))


def _ports_of_servers() -> range:
    """Unprivileged ports below those that the system takes for outgoing connections, if there are some."""
    try:
        first_outgoing = int(OUTGOING_PORTS.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        first_outgoing = LOWEST_DYNAMIC_PORT
    if first_outgoing < LOWEST_PORT + PORTS_TO_CHOOSE_FROM:
        return range(LOWEST_PORT, HIGHEST_PORT + 1)
    return range(LOWEST_PORT, first_outgoing)


def _can_bind(bind: Callable[[tuple[str, int]], None], port: int) -> bool:
    try:
        bind((HOST, port))
    except OSError:
        return False
    return True


def _reserve(port: int) -> socket.socket | None:
    """What stands for a port among the `ottla up` of this machine as long as it is open: a name that only one can
    have, and that needs no file. None when another one has it.
    """
    if not sys.platform.startswith("linux"):
        return socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)  # there are no such names elsewhere
    name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        name.bind(f"\0ottla-port-{port}")
    except OSError:
        name.close()
        return None
    return name


def _as_json(layout: Layout) -> dict[str, Any]:
    members = {"quorum": layout.quorum, "brokers": layout.brokers}
    return {"cluster_id": layout.cluster_id} | {
        name: [asdict(member) for member in group] for name, group in members.items()
    }


def _from_json(directory: Path, raw: Mapping[str, Any]) -> Layout:
    no_endpoint = {"metrics_port": 0}  # as the first versions wrote it
    quorum = [Member(**(no_endpoint | entry)) for entry in raw["quorum"]]
    brokers = [Member(**(no_endpoint | entry)) for entry in raw["brokers"]]
    return Layout(directory, raw["cluster_id"], quorum, brokers)
