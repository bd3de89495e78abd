"""Nodes of a cluster whose quorum uses TLS, each a process, with files that change while they run."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ottla.cli.local_cluster.ports import free_ports
from ottla.cli.nodes.java_properties import written
from tests.certificates import Authority

HOST = "127.0.0.1"
VOTERS = (101, 102, 103)
UNIT = "nodes"


@dataclass
class QuorumTlsNodes:
    """The nodes by id. Certificates are issued by the authority in force at that time."""

    folder: Path
    authority: Authority
    ports: dict[int, int]
    processes: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.trust_file.write_bytes(self.authority.file.read_bytes())

    @property
    def trust_file(self) -> Path:
        """File of the authorities that all nodes trust."""
        return self.folder / "trusted.pem"

    def key_file(self, node_id: int) -> Path:
        """Return the file with a node's key and certificate."""
        return self.folder / f"node-{node_id}.pem"

    def issue(self, node_id: int, name: str = "", authority: Authority | None = None) -> None:
        """Issue a new key and certificate for a node, optionally under another node's name."""
        name = name or f"node-{node_id}"
        issued = (authority or self.authority).issue(
            f"{node_id}-{name}", HOST, "localhost", common_name=name, unit=UNIT, days=90
        )
        replace_file(self.key_file(node_id), issued.both.read_bytes())

    def settings(self, node_id: int) -> dict[str, str]:
        """Return the settings of a quorum node or a broker."""
        is_voter = node_id in VOTERS
        return {
            "cluster.id": "tls",
            "cluster.secret.file": str(self.folder / "secret"),
            "cluster.link.encryption": "required",
            "controller.quorum.voters": ",".join(f"{voter}@{HOST}:{self.ports[voter]}" for voter in VOTERS),
            "node.id": str(node_id),
            "process.roles": "controller" if is_voter else "broker",
            "log.dirs": str(self.folder / f"data-{node_id}"),
            "listeners": f"{'CONTROLLER' if is_voter else 'PLAINTEXT'}://{HOST}:{self.ports[node_id]}",
            "listener.security.protocol.map": "CONTROLLER:SSL,PLAINTEXT:PLAINTEXT",
            "ssl.keystore.location": str(self.key_file(node_id)),
            "ssl.truststore.location": str(self.trust_file),
            # Files are only reloaded on a signal.
            "ssl.reload.interval.ms": "0",
            "ssl.principal.mapping.rules": r"RULE:^.*?CN=([^,]+).*$/$1/",
            "ottla.node.principals": ";".join(f"User:node-{voter}" for voter in (*VOTERS, 1, 2)),
        }

    def settings_file(self, node_id: int) -> Path:
        """Return the settings file of a node."""
        return self.folder / f"node-{node_id}.properties"

    def log(self, node_id: int) -> str:
        """Return the whole log of a node."""
        return (self.folder / f"log-{node_id}").read_text()

    def start(self, node_id: int, **others: str) -> None:
        """Start a node. `others`: additional settings, with _ in place of dots; an empty one is removed."""
        settings = self.settings(node_id) | {name.replace("_", "."): text for name, text in others.items()}
        file = self.settings_file(node_id)
        file.write_text(written({name: text for name, text in settings.items() if text}))
        file.chmod(0o600)
        role = "quorum" if node_id in VOTERS else "broker"
        argv = [sys.executable, "-m", "ottla", role, "-c", str(file), "--log-level", "info"]
        environ = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}
        with (self.folder / f"log-{node_id}").open("ab") as out:
            self.processes[node_id] = subprocess.Popen(argv, stdout=out, stderr=out, env=environ)

    def issue_and_start(self, node_id: int) -> None:
        """Issue a certificate for a node, and start it."""
        self.issue(node_id)
        self.start(node_id)

    def kill(self, node_id: int) -> None:
        """Kill a node at once."""
        self.processes[node_id].kill()
        self.processes[node_id].wait()

    def look_at_keys(self, node_id: int) -> None:
        """Make a node reload its key files, as an operator does."""
        self.processes[node_id].send_signal(signal.SIGHUP)

    def serves(self, broker_id: int) -> bool:
        """Return whether a broker has logged that it serves."""
        return f"broker {broker_id} serves" in self.log(broker_id)

    def shown(self, voter: int) -> bytes:
        """Return the certificate that a quorum node presents to new connections now, in DER."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        with (
            socket.create_connection((HOST, self.ports[voter]), 10) as plain,
            context.wrap_socket(plain) as connection,
        ):
            certificate = connection.getpeercert(binary_form=True)
        assert certificate is not None
        return certificate

    def in_file(self, node_id: int) -> bytes:
        """Return the certificate in a node's file, in DER."""
        begin = "-----BEGIN CERTIFICATE-----"
        text = self.key_file(node_id).read_text()
        return ssl.PEM_cert_to_DER_cert(begin + text.split(begin)[1])


@contextmanager
def quorum_tls_nodes(folder: Path, *brokers: int) -> Iterator[QuorumTlsNodes]:
    """Prepare ports and files for the voters and these brokers. No node runs yet, and none is left afterwards."""
    reserved: list[socket.socket] = []
    choosing = free_ports(reserved)
    ports = {node_id: next(choosing) for node_id in (*VOTERS, *brokers)}
    choosing.close()
    for held in reserved:
        held.close()
    secret = folder / "secret"
    secret.touch(mode=0o600)
    secret.write_text(secrets.token_hex(32))
    nodes = QuorumTlsNodes(folder, Authority(folder / "ca"), ports)
    try:
        yield nodes
    finally:
        for process in nodes.processes.values():
            process.kill()
            process.wait()


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file atomically, as programs that renew certificates do."""
    part = path.with_suffix(".part")
    part.write_bytes(content)
    part.chmod(0o600)
    os.replace(part, path)
