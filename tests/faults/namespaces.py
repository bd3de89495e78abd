"""Networks made by a test: a host is a network namespace on a switch, and every link between two hosts can be cut, in
one direction or in both.

    with network("client", "a", "b") as net, net.inside("client"):
        net.cut("a", "b")       # what a sends never arrives at b
        net.heal()

A packet on a cut link is sent to an unused link address: the sender notices nothing, as when a cable breaks after the
first switch. This needs no packet filter in the kernel, only namespaces; all namespaces, including the clients',
belong to the test, so their addresses cannot clash with others.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from ottla.cli.files import write_atomically
from ottla.cli.local_cluster.layout import ClusterLayout, Member
from ottla.cli.nodes.java_properties import written
from ottla.testing.processes import executed
from tests.cluster import (
    START_TIMEOUT_S,
    WAIT_S,
    Node,
    RunningCluster,
    leader_by_metrics,
    wait_for,
    wait_until,
)

_PREFIX = "ottla-test-"
_NAMES = Path("/run/netns")
_CLONE_NEWNET = 0x40000000
_NOBODY = "02:00:00:00:ff:ff"
CLIENT = "client"
BROKER_PORT, QUORUM_PORT, METRICS_PORT = 9092, 9093, 9494

_libc = ctypes.CDLL(None, use_errno=True)
_counter = itertools.count()


@cache
def unavailable() -> str:
    """Return the reason why networks cannot be made here; empty if they can."""
    if not sys.platform.startswith("linux"):
        return "network namespaces are Linux's"
    missing = [tool for tool in ("ip", "nsenter") if shutil.which(tool) is None]
    if missing:
        return f"network namespaces need {' and '.join(missing)} (iproute2, util-linux)"
    name = f"{_PREFIX}{os.getpid()}-probe"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode:
        return f"network namespaces need CAP_NET_ADMIN and CAP_SYS_ADMIN: {made.stderr.strip()}"
    linked = _ip(
        "-n", name, "link", "add", "name", "one", "type", "veth", "peer", "name", "other", check=False
    )
    bridged = _ip("-n", name, "link", "add", "name", "switch", "type", "bridge", check=False)
    _ip("netns", "del", name)
    return "" if linked and bridged else "the kernel has no veth devices or no bridges"


def _ip(*arguments: str, batch: Iterable[str] = (), check: bool = True) -> bool:
    """Run `ip`, optionally with lines for its batch mode; return whether it succeeded."""
    lines = "".join(f"{line}\n" for line in batch)
    command = ["ip", *arguments, *(["-batch", "-"] if lines else [])]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, f"{command}: {done.stderr}\n{lines}"
    return done.returncode == 0


@dataclass
class Network:
    """Hosts by name, and the state of every link, so that cuts add up and `heal` undoes all of them."""

    hosts: Sequence[str]
    prefix: str
    _cut: set[tuple[str, str]] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def address(self, host: str) -> str:
        """Return the IP address of a host."""
        return f"10.0.0.{1 + self.hosts.index(host)}"

    def namespace(self, host: str) -> str:
        """Return the name of the host's namespace."""
        return f"{self.prefix}-{host}"

    def entering(self, host: str) -> list[str]:
        """Return the first words of a command that runs a process on this host."""
        return ["nsenter", f"--net={_NAMES / self.namespace(host)}"]

    def _link_address(self, host: str) -> str:
        return f"02:00:00:00:00:{1 + self.hosts.index(host):02x}"

    def make(self) -> None:
        """Create namespaces, switch and links."""
        switch = f"{self.prefix}-switch"
        for name in (switch, *map(self.namespace, self.hosts)):
            _ip("netns", "add", name)
        lines = ["link add name switch type bridge", "link set switch up", "link set lo up"]
        for number, host in enumerate(self.hosts):
            lines.append(f"link add name p{number} type veth peer name eth0 netns {self.namespace(host)}")
            lines.append(f"link set p{number} master switch up")
        _ip("-n", switch, batch=lines)
        for host in self.hosts:
            ways = (self._way(other, cut=False) for other in self.hosts if other != host)
            lines = [
                "link set lo up",
                f"link set eth0 address {self._link_address(host)}",
                f"addr add {self.address(host)}/24 dev eth0",
                "link set eth0 up",
                *ways,
            ]
            _ip("-n", self.namespace(host), batch=lines)

    def _way(self, to: str, *, cut: bool) -> str:
        link = _NOBODY if cut else self._link_address(to)
        return f"neigh replace {self.address(to)} lladdr {link} dev eth0 nud permanent"

    def _set(self, ways: Iterable[tuple[str, str]], *, cut: bool) -> None:
        with self._lock:
            lines: dict[str, list[str]] = {}
            for host, to in ways:
                lines.setdefault(host, []).append(self._way(to, cut=cut))
                (self._cut.add if cut else self._cut.discard)((host, to))
            for host, batch in lines.items():
                _ip("-n", self.namespace(host), batch=batch)

    def cut(self, sender: str, *receivers: str) -> None:
        """Drop all packets from `sender` to `receivers`; the other direction stays."""
        self._set([(sender, receiver) for receiver in receivers], cut=True)

    def part(self, some: Iterable[str], others: Iterable[str]) -> None:
        """Cut both directions between each of `some` and each of `others`."""
        pairs = [(a, b) for a, b in itertools.product(some, others) if a != b]
        self._set([*pairs, *((b, a) for a, b in pairs)], cut=True)

    def mend(self, some: Iterable[str], others: Iterable[str]) -> None:
        """Undo `part`."""
        pairs = [(a, b) for a, b in itertools.product(some, others) if a != b]
        self._set([*pairs, *((b, a) for a, b in pairs)], cut=False)

    def unplug(self, host: str) -> None:
        """Take the switch's end of a host's link down, as a pulled cable does."""
        _ip("-n", f"{self.prefix}-switch", "link", "set", f"p{self.hosts.index(host)}", "down")

    def plug(self, host: str) -> None:
        """Take the switch's end of a host's link up again."""
        _ip("-n", f"{self.prefix}-switch", "link", "set", f"p{self.hosts.index(host)}", "up")

    def slow(self, host: str, rate: str) -> None:
        """Limit a host's sending rate to `rate` (in the form of `tc`, like `1mbit`); packets that wait longer than 100
        ms are dropped.
        """
        command = ["tc", "-n", self.namespace(host), "qdisc", "replace", "dev", "eth0", "root", "tbf"]
        subprocess.run([*command, "rate", rate, "burst", "16k", "latency", "100ms"], check=True)

    def heal(self) -> None:
        """Let all hosts reach each other again, at full speed."""
        self._set(list(self._cut), cut=False)
        for host in self.hosts:
            command = ["tc", "-n", self.namespace(host), "qdisc", "del", "dev", "eth0", "root"]
            subprocess.run(command, check=False, capture_output=True)

    @contextmanager
    def flaky(self, some: Sequence[str], others: Sequence[str], seed: int) -> Iterator[None]:
        """Drop all packets between two groups at moments that a seed decides, about a third of the time."""
        chance, over = random.Random(seed), threading.Event()

        def run() -> None:
            while not over.wait(chance.uniform(0.02, 0.3)):
                self.part(some, others)
                over.wait(chance.uniform(0.01, 0.15))
                self.mend(some, others)

        thread = threading.Thread(target=run, name="flaky link")
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    @contextmanager
    def inside(self, host: str) -> Iterator[None]:
        """Move the calling thread to `host`, with the sockets it makes, and the threads and processes it starts."""
        with Path("/proc/thread-self/ns/net").open() as before:
            with (_NAMES / self.namespace(host)).open() as there:
                _enter(there.fileno())
            try:
                yield
            finally:
                _enter(before.fileno())

    def delete(self) -> None:
        """Delete the namespaces, and thereby all links."""
        for name in (f"{self.prefix}-switch", *map(self.namespace, self.hosts)):
            _ip("netns", "del", name, check=False)


def _enter(fd: int) -> None:
    if _libc.setns(fd, _CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


@contextmanager
def network(*hosts: str) -> Iterator[Network]:
    """Make a network of these hosts, until the block ends."""
    _sweep()
    made = Network(hosts, f"{_PREFIX}{os.getpid()}-{next(_counter)}")
    try:
        made.make()
        yield made
    finally:
        made.delete()


def _sweep() -> None:
    """Delete the namespaces of killed test processes."""
    for path in _NAMES.glob(f"{_PREFIX}*"):
        pid = path.name.removeprefix(_PREFIX).split("-")[0]
        if not Path(f"/proc/{pid}").exists():
            _ip("netns", "del", path.name, check=False)


# Clusters


@dataclass
class NetworkCluster(RunningCluster):
    """A cluster with a separate host for each node; its clients run on the host CLIENT."""

    net: Network = field(kw_only=True)

    def host(self, node: Node) -> str:
        """Return the name of a node's host."""
        return f"{node.role[0]}{node.id}"

    def hosts(self, nodes: Iterable[Node]) -> list[str]:
        """Return the names of the nodes' hosts."""
        return [self.host(node) for node in nodes]

    def known_leader(self, node: Node) -> int | None:
        """Return the leader according to a quorum node's metrics."""
        return leader_by_metrics(f"{node.entry['host']}:{METRICS_PORT}")

    def quorum_leader(self) -> Node:
        """Return the node that considers itself the leader, once exactly one does."""

        def ask() -> Node | None:
            found = [node for node in self.quorum if self.known_leader(node) == node.id]
            return found[0] if len(found) == 1 else None

        return wait_for(ask, "a quorum leader")

    def wait_until_quorum_agrees(self, timeout_s: float = WAIT_S) -> None:
        """Return once every quorum node names the same leader."""

        def agreed() -> bool:
            named = {self.known_leader(node) for node in self.quorum}
            return len(named) == 1 and not named & {None, -1}

        wait_until(agreed, "a quorum that agrees", timeout_s)

    def start(self) -> None:
        """Start every node; return once all brokers take part."""
        for node in (*self.quorum, *self.brokers):
            node.restart()
        ids = {node.id for node in self.brokers}
        wait_until(lambda: self.taking_part() == ids, "all brokers", START_TIMEOUT_S)

    def stop(self) -> int:
        """Kill all running nodes; nothing of the cluster is used again."""
        self.kill()
        return 0


@contextmanager
def network_cluster(
    directory: Path,
    *,
    quorum: int = 3,
    brokers: int = 3,
    settings: Mapping[str, str] | None = None,
    programs: Sequence[str] = (),
) -> Iterator[NetworkCluster]:
    """Run a cluster with each node on a separate host. Enter `cluster.net.inside(CLIENT)` to communicate with it.

    `programs`: additional hosts, for programs that can be cut off from the cluster.
    """
    layout = ClusterLayout(
        directory,
        "networked",
        [Member("quorum", 101 + number, QUORUM_PORT, METRICS_PORT) for number in range(quorum)],
        [Member("broker", 1 + number, BROKER_PORT, METRICS_PORT) for number in range(brokers)],
    )
    names = {(member.role, member.id): f"{member.role[0]}{member.id}" for member in layout.members}
    with ExitStack() as stack:
        net = stack.enter_context(network(CLIENT, *names.values(), *programs))
        hosts = {key: net.address(name) for key, name in names.items()}
        layout.write({})
        description = _describe(layout, net, names, hosts, settings or {})
        cluster = NetworkCluster(directory, None, description, net=net, start_node=executed)  # on their hosts
        stack.callback(cluster.stop)
        with net.inside(CLIENT):
            cluster.start()
        yield cluster


def _describe(
    layout: ClusterLayout,
    net: Network,
    names: Mapping[tuple[str, int], str],
    hosts: Mapping[tuple[str, int], str],
    settings: Mapping[str, str],
) -> dict[str, object]:
    """Write every node's settings, and return the content of cluster.json."""
    voters = ",".join(f"{m.id}@{hosts[m.role, m.id]}:{m.port}" for m in layout.quorum)
    entries: dict[str, list[dict[str, object]]] = {"quorum": [], "broker": []}
    for member in layout.members:
        key = member.role, member.id
        protocol = "PLAINTEXT" if member.role == "broker" else "CONTROLLER"
        own = {
            "controller.quorum.voters": voters,
            "listeners": f"{protocol}://{hosts[key]}:{member.port}",
            "metrics.listener": f"{hosts[key]}:{member.metrics_port}",
        }
        if member.role == "broker":
            own["advertised.listeners"] = own["listeners"]
        else:
            own["broker.fence.on.refusal"] = "any"  # No client forges refusals here.
        text = written(layout.settings(member, own | dict(settings)))
        write_atomically(layout.settings_file(member), text)
        argv = ["setpriv", "--pdeathsig", "TERM"]  # no `ottla up` ends them with the tests
        argv += [*net.entering(names[key]), sys.executable, "-m", "ottla"]
        argv += [member.role, "-c", str(layout.settings_file(member)), "--log-level", "info"]
        entries[member.role].append(
            {
                "id": member.id,
                "host": hosts[key],
                "port": member.port,
                "pid": 0,
                "argv": argv,
                "cwd": str(Path(__file__).parents[2]),
                "env": dict(os.environ),
                "log": str(layout.log_file(member)),
            }
        )
    bootstrap = ",".join(f"{hosts[m.role, m.id]}:{m.port}" for m in layout.brokers)
    return {"bootstrap": bootstrap, "quorum": entries["quorum"], "brokers": entries["broker"], "hooks": {}}
