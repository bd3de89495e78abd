"""A cluster on loopback whose nodes are started one by one: each may run other code and other settings than the rest.

with node_cluster(tmp_path, code=older) as cluster:
    for node in cluster.nodes:
        cluster.restart(node, {"super.users": "User:admin"}, code=ROOT)
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from ottla.cli.files import write_atomically
from ottla.cli.local_cluster.layout import ClusterLayout, Member, open_layout
from ottla.cli.nodes.java_properties import written
from ottla.testing.nodes import Node
from ottla.testing.processes import executed
from tests.cluster import START_TIMEOUT_S, WAIT_S, RunningCluster, leader_by_metrics, wait_until

ROOT = Path(__file__).parents[2]
"""Folder of this version's code."""


@dataclass
class NodeCluster(RunningCluster):
    """A cluster with each node's settings, and the topics that are in sync when all is well."""

    layout: ClusterLayout = field(kw_only=True)
    settings: dict[str, dict[str, str]] = field(default_factory=dict)
    """Settings by the name of a node."""
    topics: list[str] = field(default_factory=list)

    @property
    def nodes(self) -> list[Node]:
        """Nodes in the order of an upgrade: quorum nodes first."""
        return [*self.quorum, *self.brokers]

    def member(self, node: Node) -> Member:
        return next(
            member for member in self.layout.members if (member.role, member.id) == (node.role, node.id)
        )

    def configure(self, node: Node, changes: Mapping[str, str], code: Path | None = None) -> None:
        """Change the node's settings and code for its next start; an empty setting is removed."""
        member = self.member(node)
        own = self.settings[member.name]
        own |= changes
        kept = {key: value for key, value in own.items() if value}
        write_atomically(self.layout.settings_file(member), written(kept))
        if code is not None:
            node.entry["cwd"] = str(code)

    def restart(self, node: Node, changes: Mapping[str, str], code: Path | None = None) -> None:
        """Stop a node in good order and start it with these changes; return once the cluster is whole again."""
        node.terminate()
        self.configure(node, changes, code)
        node.restart()
        self.wait_whole()

    def wait_whole(self, timeout_s: float = WAIT_S * 2) -> None:
        """Return once the quorum agrees, all brokers take part and every replica of the topics is in sync."""
        self.wait_until_quorum_agrees(timeout_s)
        ids = {node.id for node in self.brokers}
        wait_until(lambda: self.taking_part() == ids, "all brokers", timeout_s)
        for topic in self.topics:
            self.wait_until_in_sync(topic, timeout_s)

    def wait_until_quorum_agrees(self, timeout_s: float = WAIT_S) -> None:
        """Return once every quorum node names the same leader."""
        addresses = [f"127.0.0.1:{self.member(node).metrics_port}" for node in self.quorum]

        def agreed() -> bool:
            named = {leader_by_metrics(address) for address in addresses}
            return len(named) == 1 and not named & {None, -1}

        wait_until(agreed, "a quorum that agrees", timeout_s)

    def stop(self) -> int:
        """Kill all running nodes; nothing of the cluster is used again."""
        self.kill()
        return 0


@contextmanager
def node_cluster(
    directory: Path,
    *,
    quorum: int = 3,
    brokers: int = 3,
    settings: Mapping[str, str] | None = None,
    own: Callable[[ClusterLayout, Member], Mapping[str, str]] = lambda _layout, _member: {},
    code: Path = ROOT,
) -> Iterator[NodeCluster]:
    """Run a cluster with common `settings` and additional settings of each node. The nodes run the code in `code`."""
    directory.mkdir(parents=True, exist_ok=True)
    layout = open_layout(directory, quorum=quorum, brokers=brokers, base_port=None)
    layout.write({})
    entries: dict[str, list[dict[str, object]]] = {"quorum": [], "broker": []}
    for member in layout.members:
        argv = ["setpriv", "--pdeathsig", "TERM", sys.executable, "-m", "ottla", member.role]
        entries[member.role].append(
            {
                "id": member.id,
                "port": member.port,
                "pid": 0,
                "argv": [*argv, "-c", str(layout.settings_file(member)), "--log-level", "info"],
                "cwd": str(code),
                "env": {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")},
                "log": str(layout.log_file(member)),
            }
        )
    description = {
        "bootstrap": layout.bootstrap,
        "quorum": entries["quorum"],
        "brokers": entries["broker"],
        "hooks": {},
    }
    # They may run other code than this.
    cluster = NodeCluster(directory, None, description, layout=layout, start_node=executed)
    try:
        for node in cluster.nodes:
            member = cluster.member(node)
            cluster.settings[member.name] = layout.settings(
                member, {**(settings or {}), **own(layout, member)}
            )
            # One secret for all: versions of the past know none of the quorum alone.
            cluster.configure(node, {"quorum.secret.file": ""})
            node.restart()
        cluster.wait_whole(START_TIMEOUT_S)
        yield cluster
    except BaseException as error:
        error.add_note(f"The logs of the nodes are in {layout.log_file(layout.members[0]).parent}")
        raise
    finally:
        with suppress(ProcessLookupError):
            cluster.stop()
        for reserved in layout.reserved:
            reserved.close()
