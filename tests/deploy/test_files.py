"""The files in deploy/ are accepted by their intended programs, as far as these are available here."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from confluent_kafka.admin import AdminClient

from ottla.cli.nodes.settings import read_settings
from ottla.dataplane.configuration.config import BrokerConfig
from ottla.metadata_quorum.config import QuorumNodeConfig
from ottla.protocol.settings.config_keys import NODE_KEYS, Scope, check_properties
from tests.cluster import wait_until

from .test_dashboard import NAME, exported

DEPLOY = Path(__file__).parents[2] / "deploy"
BIN = Path(sys.executable).parent
UNPRIVILEGED = 65534
SECRETS = (
    "deploy/container/*.secret",
    "deploy/container/authority",
    "deploy/container/tls",
    "deploy/kubernetes-secured/admin.password",
    "deploy/kubernetes-secured/authority",
    "deploy/kubernetes-secured/tls",
)
MANIFESTS = [
    f"{folder}/{name}.yaml"
    for folder in ("kubernetes", "kubernetes-secured")
    for name in ("quorum", "broker")
]


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.secret"
    path.write_text("0123456789abcdef" * 2)
    path.chmod(0o644)
    return path


@pytest.mark.parametrize("role", ["quorum", "broker"])
def test_nodes_accept_the_annotated_settings(role: str, secret: Path) -> None:
    settings = read_settings(DEPLOY / f"config/{role}.yaml")
    assert check_properties(settings, Scope.QUORUM if role == "quorum" else Scope.BROKER) == []
    settings["cluster.secret.file"] = str(secret)
    if role == "quorum":
        settings["quorum.secret.file"] = str(secret)
    config = QuorumNodeConfig if role == "quorum" else BrokerConfig
    assert config.from_properties(settings).cluster_id == "production"


@pytest.mark.parametrize("role", ["quorum", "broker"])
def test_systemd_accepts_the_units(role: str, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not installed")
    text = (DEPLOY / f"systemd/ottla-{role}.service").read_text()
    assert "StateDirectoryMode=0750\n" in text
    unit = tmp_path / f"ottla-{role}.service"
    unit.write_text(text.replace("/opt/ottla/bin/ottla", str(BIN / "ottla")))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("folder", ["kubernetes", "kubernetes-secured"])
@pytest.mark.parametrize("name", ["quorum", "broker"])
def test_kubernetes_accepts_the_manifests(name: str, folder: str) -> None:
    path = DEPLOY / f"{folder}/{name}.yaml"
    done = subprocess.run(
        [BIN / "kubernetes-validate", "--strict", path], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["compose", "compose-secured"])
def test_compose_accepts_its_file(name: str) -> None:
    path = DEPLOY / f"container/{name}.yaml"
    command = [BIN / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_image_is_built_where_there_is_a_compiler() -> None:
    """Without a compiler the C extensions are left out, and nodes run slower."""
    stages = re.findall(r"^FROM (\S+)", (DEPLOY / "container/Containerfile").read_text(), re.MULTILINE)
    assert [each.endswith("-slim") for each in stages] == [False, True]
    assert stages[1].removesuffix("-slim") == stages[0]


def test_what_is_no_source_stays_out_of_the_image() -> None:
    ignored = (DEPLOY.parent / ".dockerignore").read_text().splitlines()
    assert {".venv", "build", "**/*.so", *SECRETS} <= set(ignored)
    assert {f"/{path}" for path in SECRETS} <= set((DEPLOY.parent / ".gitignore").read_text().splitlines())


def variables(tree: object) -> Iterator[str]:
    """Yield every KAFKA_ variable that a manifest sets."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from (word for word in (key, value) if isinstance(word, str) and word.startswith("KAFKA_"))
            yield from variables(value)
    elif isinstance(tree, list):
        for item in tree:
            yield from variables(item)


@pytest.mark.parametrize("path", ["container/compose.yaml", "container/compose-secured.yaml", *MANIFESTS])
def test_every_variable_is_a_setting(path: str) -> None:
    names = {"KAFKA_" + key.upper().replace(".", "_") for key in NODE_KEYS}
    used = set(variables(list(yaml.safe_load_all((DEPLOY / path).read_text()))))
    assert used
    assert used <= names


def test_alerts_use_names_that_are_exported() -> None:
    rules = yaml.safe_load((DEPLOY / "prometheus/alerts.yml").read_text())["groups"][0]["rules"]
    used = {name for rule in rules for name in NAME.findall(rule["expr"])}
    assert used
    assert used <= exported()


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


@contextmanager
def entry_point(
    role: str, folder: Path, variables: dict[str, str], *options: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Run the container's entry point as a user who may write in `folder` alone."""
    command = [str(DEPLOY / "container/entrypoint.sh"), role, *options]
    if os.geteuid() == 0:
        # The one right it keeps is to read: this Python may lie in root's home.
        rights = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
        user = [f"--reuid={UNPRIVILEGED}", f"--regid={UNPRIVILEGED}", "--clear-groups"]
        command = ["setpriv", *user, *rights, *command]
        os.chown(folder, UNPRIVILEGED, UNPRIVILEGED)
    environment = {"PATH": f"{BIN}:/usr/bin:/bin", "OTTLA_DATA": str(folder), **variables}
    with (folder.parent / f"{role}.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.terminate()
        assert process.wait(30) == 0


def is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return answer.status == 200
    except (OSError, urllib.error.HTTPError):
        return False


def test_the_entry_point_runs_unprivileged_in_an_empty_folder(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    root = tmp_path_factory.mktemp("container")
    for folder in (root, *root.parents):
        if folder.is_relative_to("/tmp") and folder != Path("/tmp"):
            folder.chmod(0o755)
    secret = root / "cluster.secret"
    secret.write_text("0123456789abcdef" * 2)
    data = [root / "pod-0", root / "pod-1"]
    for folder in data:
        folder.mkdir()
    quorum, kafka, metrics = free_port(), free_port(), [free_port(), free_port()]
    both = {
        "KAFKA_CLUSTER_ID": "test",
        "KAFKA_CLUSTER_SECRET_FILE": str(secret),
        "KAFKA_CONTROLLER_QUORUM_VOTERS": f"101@127.0.0.1:{quorum}",
    }
    quorum_variables = {
        **both,
        "HOSTNAME": "ottla-quorum-0",
        "KAFKA_LISTENERS": f"CONTROLLER://127.0.0.1:{quorum}",
        "KAFKA_METRICS_LISTENER": f"127.0.0.1:{metrics[0]}",
    }
    broker_variables = {
        **both,
        "HOSTNAME": "ottla-broker-4",
        "KAFKA_LISTENERS": f"PLAINTEXT://127.0.0.1:{kafka}",
        "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://127.0.0.1:{kafka}",
        "KAFKA_METRICS_LISTENER": f"127.0.0.1:{metrics[1]}",
    }
    with (
        entry_point("quorum", data[0], quorum_variables),
        entry_point("broker", data[1], broker_variables),
    ):
        wait_until(lambda: all(map(is_ready, metrics)), "a quorum node and a broker that are ready")
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{kafka}"})
        assert list(admin.list_topics(timeout=10).brokers) == [5]
    assert (data[1] / "broker/meta.properties").exists()


def test_the_entry_point_says_what_is_missing() -> None:
    done = subprocess.run(
        [DEPLOY / "container/entrypoint.sh", "broker"],
        env={"HOSTNAME": "laptop", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 2
    assert re.search("set KAFKA_NODE_ID: the host name laptop", done.stderr)
