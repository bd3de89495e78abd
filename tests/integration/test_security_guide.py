"""docs/SECURITY-GUIDE.md: its steps lead to a cluster on the network, and its snippets connect to such a cluster."""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from ottla.cli.local_cluster.layout import known_layout
from tests import java
from tests.cli.test_up_secure import ottla
from tests.cluster import WAIT_S, RunningCluster, executed_cluster, wait_until
from tests.faults.namespaces import Network, network, unavailable

PAGE = Path(__file__).resolve().parents[2] / "docs" / "SECURITY-GUIDE.md"
BIN = Path(sys.executable).parent
STEPS_MAX = 8
ADDRESS = "10.0.0.1:9092"
pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("test_security_guide"), pytest.mark.timeout(240)]


def section(heading: str) -> str:
    """Return the text of a section of the page."""
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## )", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None, heading
    return found[1]


def blocks(heading: str, kind: str) -> list[str]:
    """Return the code blocks of one kind in a section."""
    return re.findall(rf"^```{kind}\n(.*?)^```", section(heading), re.MULTILINE | re.DOTALL)


# The steps


@dataclass(frozen=True)
class Steps:
    """The commands of the page by their place."""

    start: str
    operator: str
    client: str

    @classmethod
    def of_page(cls) -> Steps:
        """Return the commands of the first block, which is divided by comments."""
        block, *_ = blocks("Eight steps to a cluster on the network", "")
        _, start, operator, client = re.split(r"^# .*\n", block, flags=re.MULTILINE)
        return cls(start.strip(), operator, client)

    def __len__(self) -> int:
        return len(
            [line for part in (self.start, self.operator, self.client) for line in part.split("\n") if line]
        )


def test_the_page_needs_at_most_eight_steps() -> None:
    assert 0 < len(Steps.of_page()) <= STEPS_MAX


@dataclass(frozen=True)
class Host:
    """A host of the network with a home folder and the shell of its user."""

    net: Network
    name: str
    home: Path
    programs: Path

    @property
    def environment(self) -> Mapping[str, str]:
        return {
            "PATH": f"{self.programs}:{BIN}:{os.environ['PATH']}",
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
        }

    def argv(self, line: str) -> list[str]:
        return [*self.net.entering(self.name), "bash", "-e", "-o", "pipefail", "-c", line]

    def run(self, lines: str) -> str:
        """Run commands to their end, and return their output."""
        done = subprocess.run(
            self.argv(lines),
            cwd=self.home,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @contextmanager
    def started(self, line: str) -> Iterator[subprocess.Popen[str]]:
        """Run a command until the block ends."""
        with (self.home / "started.log").open("w") as log:
            argv = ["setpriv", "--pdeathsig", "TERM", *self.argv(f"exec {line}")]
            process = subprocess.Popen(
                argv, cwd=self.home, env=self.environment, stdout=log, stderr=log, text=True
            )
        try:
            yield process
        finally:
            process.terminate()
            process.wait(WAIT_S)


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[tuple[Host, Host]]:
    """Make two hosts. `scp` copies to the home of the client's user: no server of ssh runs there."""
    homes, programs = [tmp_path / "server", tmp_path / "client"], tmp_path / "bin"
    for folder in (*homes, programs):
        folder.mkdir()
    copy = programs / "scp"
    copy.write_text(f'#!/bin/sh\n[ "$1 $3" = "-r client.example.com:" ] && exec cp -r "$2" "{homes[1]}"\n')
    copy.chmod(0o755)
    with network("server", "client") as net:
        server, client = (
            Host(net, name, home, programs) for name, home in zip(net.hosts, homes, strict=True)
        )
        yield server, client


def reachable(net: Network, host: str, ports: Mapping[int, str]) -> set[int]:
    """Return the ports of the first host that another host can connect to."""
    script = "import socket, sys\nfor port in sys.argv[2:]:\n    with socket.socket() as s:\n        s.settimeout(5)\n"
    script += "        print(port) if s.connect_ex((sys.argv[1], int(port))) == 0 else None\n"
    argv = [*net.entering(host), sys.executable, "-c", script, net.address(net.hosts[0]), *map(str, ports)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=WAIT_S, check=True)
    return set(map(int, done.stdout.split()))


@pytest.mark.skipif(bool(unavailable()), reason=unavailable())
def test_the_steps_of_the_page_on_two_hosts(hosts: tuple[Host, Host]) -> None:
    server, client = hosts
    steps = Steps.of_page()
    with server.started(steps.start) as up:
        log = server.home / "started.log"

        def is_up() -> bool:
            assert up.poll() is None, log.read_text()
            return "Control-C stops them" in log.read_text()

        wait_until(is_up, "the cluster", 60)
        server.run(steps.operator)
        client.run(steps.client)
        read = client.run("export OTTLA_CONFIG_DIR=$PWD/ann\nottla consume orders -o beginning -e")
        assert read.split() == [str(number) for number in range(1, 11)]
        layout = known_layout(server.home / "ottla-data")
        ports = {port: node.name for node in layout.members for _, port in layout.addresses(node)}
        assert reachable(server.net, client.name, ports) == {9092, 9093, 9094}
        assert "firewall      TCP 9092, 9093, 9094 of 10.0.0.1" in log.read_text()


# The snippets


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """Run a cluster with the user ann of the page, whose files are in the folder `ann`."""
    folder = tmp_path_factory.mktemp("guide")
    arguments = ("--combined", "--secure", "--listen", "127.0.0.2")
    with executed_cluster(folder, quorum=1, brokers=1, arguments=arguments) as running:
        config = folder / "client"
        ottla("topic", "create", "orders", "-p", "1", config=config)
        ottla("user", "create", "ann", "--client-files", str(folder / "ann"), config=config)
        words = (
            "--principal",
            "User:ann",
            "--operation",
            "READ",
            "--operation",
            "WRITE",
            "--topic",
            "orders",
        )
        ottla("acl", "create", *words, config=config)
        yield running


def written(cluster: RunningCluster) -> list[str]:
    """Return the values of the topic."""
    return ottla("consume", "orders", "-o", "beginning", "-e", config=cluster.directory / "ann").splitlines()


def run_snippet(text: str, names: dict[str, object]) -> None:
    """Run statements like a notebook, which permits `await` anywhere."""
    result = eval(compile(text, "snippet", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
    if inspect.iscoroutine(result):
        asyncio.run(result)


@pytest.mark.parametrize("client", ["confluent-kafka", "aiokafka", "kafka-python", "ottla"])
def test_a_snippet_writes(client: str, cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    (snippet,) = [text for text in blocks("Clients of the network", "python") if f"from {client}" in text]
    monkeypatch.chdir(cluster.directory)
    run_snippet(snippet.replace(ADDRESS, cluster.bootstrap), {})
    assert f"from {client}" in written(cluster)


def test_a_snippet_has_at_most_five_statements_after_its_imports() -> None:
    snippets = blocks("Clients of the network", "python")
    assert len(snippets) == 4
    for text in snippets:
        tree = compile(text, "snippet", "exec", flags=ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        statements = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
        assert len([node for node in statements if not isinstance(node, ast.ImportFrom)]) <= 5, text


@java.needs_java
@pytest.mark.java
@pytest.mark.parametrize("origin", ["page", "file"])
def test_java_with_the_properties_of_the_page_and_of_the_file(
    origin: str, cluster: RunningCluster, tmp_path: Path
) -> None:
    of_user = cluster.directory / "ann/ann.properties"
    (text,) = blocks("Clients of the network", "properties")
    password = (cluster.directory / "ann/ann.password").read_text().strip()
    shown = text.replace(ADDRESS, cluster.bootstrap).replace("PASSWORD", password)
    if origin == "file":
        moved = tmp_path / "ann.properties"
        moved.write_text(of_user.read_text())
        assert set(keys(shown)) - {"ssl.truststore.location"} == set(keys(moved.read_text())) - {
            "ssl.truststore.certificates"
        }
    else:
        moved = tmp_path / "page.properties"
        moved.write_text(shown.replace("ann/ca.pem", str(cluster.directory / "ann/ca.pem")))
    words = ("--bootstrap-server", cluster.bootstrap, "--topic", "orders", "--command-config", str(moved))
    producing = java.command("org.apache.kafka.tools.ConsoleProducer", *words)
    done = subprocess.run(
        producing, input=f"from java by {origin}\n", capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode == 0, done.stderr
    assert f"from java by {origin}" in written(cluster)


def keys(text: str) -> list[str]:
    return [line.partition("=")[0] for line in text.splitlines()]


@pytest.mark.skipif(shutil.which("kcat") is None, reason="needs kcat")
def test_kcat_with_the_file(cluster: RunningCluster) -> None:
    (command,) = re.findall(r"`(kcat -F ann/ann\.conf .*?)`", section("Clients of the network"))
    done = subprocess.run(command.split(), cwd=cluster.directory, capture_output=True, text=True, timeout=60)
    assert "1 brokers:" in done.stdout, done.stderr
