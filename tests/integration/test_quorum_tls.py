"""TLS of the quorum's own port: real nodes, and those that must not get in."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ottla.cli.local_cluster.ports import free_ports
from ottla.cli.nodes.java_properties import written
from tests.certificates import Authority
from tests.cluster import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

HOST = "127.0.0.1"
START_S = 60.0
VOTERS = (101, 102, 103)


@dataclass
class Nodes:
    """Of one cluster, by id, each a process."""

    folder: Path
    authority: Authority
    ports: dict[int, int]
    processes: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)

    def settings(self, node_id: int, name: str = "", authority: Authority | None = None) -> dict[str, str]:
        """Of a node whose certificate is of `name`."""
        name = name or f"node-{node_id}"
        issued = (authority or self.authority).issue(f"{node_id}-{name}", HOST, "localhost", common_name=name)
        is_voter = node_id in VOTERS
        return {
            "cluster.id": "tls",
            "cluster.secret.file": str(self.folder / "secret"),
            "cluster.link.encryption": "required",
            "controller.quorum.voters": ",".join(f"{one}@{HOST}:{self.ports[one]}" for one in VOTERS),
            "node.id": str(node_id),
            "process.roles": "controller" if is_voter else "broker",
            "log.dirs": str(self.folder / f"data-{node_id}"),
            "listeners": f"{'CONTROLLER' if is_voter else 'PLAINTEXT'}://{HOST}:{self.ports[node_id]}",
            "listener.security.protocol.map": "CONTROLLER:SSL,PLAINTEXT:PLAINTEXT",
            "ssl.keystore.location": str(issued.both),
            "ssl.truststore.location": str(self.authority.file),
            "ssl.principal.mapping.rules": r"RULE:^.*?CN=([^,]+).*$/$1/",
            "ottla.node.principals": ";".join(f"User:node-{one}" for one in (*VOTERS, 1, 2)),
        }

    def log(self, node_id: int) -> str:
        return (self.folder / f"log-{node_id}").read_text()

    def start(self, node_id: int, settings: dict[str, str]) -> None:
        file = self.folder / f"node-{node_id}.properties"
        file.write_text(written(settings))
        file.chmod(0o600)
        role = "quorum" if node_id in VOTERS else "broker"
        argv = [sys.executable, "-m", "ottla", role, "-c", str(file), "--log-level", "info"]
        environ = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}
        with (self.folder / f"log-{node_id}").open("ab") as out:
            self.processes[node_id] = subprocess.Popen(argv, stdout=out, stderr=out, env=environ)

    def serves(self, broker_id: int) -> bool:
        return f"broker {broker_id} serves" in self.log(broker_id)

    def end(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()


def test_three_nodes_and_brokers_over_tls_and_who_does_not_get_in(tmp_path: Path) -> None:
    reserved: list[socket.socket] = []
    choosing = free_ports(reserved)
    ports = {node_id: next(choosing) for node_id in (*VOTERS, 1, 2, 3, 4)}
    choosing.close()
    for one in reserved:
        one.close()
    secret = tmp_path / "secret"
    secret.touch(mode=0o600)
    secret.write_text(secrets.token_hex(32))
    nodes = Nodes(tmp_path, Authority(tmp_path / "ca"), ports)
    try:
        for voter in VOTERS:
            nodes.start(voter, nodes.settings(voter))
        nodes.start(1, nodes.settings(1))
        wait_until(lambda: nodes.serves(1), "a broker over TLS", START_S)

        # The leader dies, and the others go on over their links.
        nodes.processes[101].send_signal(signal.SIGKILL)
        nodes.processes[101].wait()
        nodes.start(2, nodes.settings(2))
        wait_until(lambda: nodes.serves(2), "a broker after a failover", START_S)
        nodes.start(101, nodes.settings(101))

        # A stolen certificate of the same authority, which is not on the list.
        nodes.start(3, nodes.settings(3, name="stolen"))
        refusal = "User:stolen may not act as a node: it is not among ottla.node.principals"
        wait_until(lambda: f"it refuses this node: {refusal}" in nodes.log(3), "a refusal", START_S)
        assert any(refusal in nodes.log(voter) for voter in VOTERS)

        # A certificate of another authority.
        nodes.start(4, nodes.settings(4, authority=Authority(tmp_path / "another")))
        wait_until(
            lambda: "this node's certificate" in nodes.log(4), "a refusal of another authority", START_S
        )
        assert not nodes.serves(3)
        assert not nodes.serves(4)

        # A node without TLS.
        nodes.processes[4].kill()
        nodes.processes[4].wait()
        plain = nodes.settings(4) | {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"}
        del plain["ottla.node.principals"]
        nodes.start(4, plain)
        wait_until(lambda: "does it expect TLS?" in nodes.log(4), "a hint to TLS", START_S)
        assert not nodes.serves(4)
    finally:
        nodes.end()
