"""The secured files in deploy/: nodes would start with their settings and with the certificates of the README."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from ottla.cli.nodes.first_users import parse_first_user
from tests.cluster import wait_until

from .test_files import BIN, DEPLOY, SECRETS, entry_point, free_port, is_ready

OPEN_METRICS = (
    "metrics.listener serves metrics to every client that reaches 0.0.0.0: "
    "metrics.bearer.token.file restricts that"
)
"""The only remark on the nodes, for the network of their containers alone. The README has it, too."""
NO_LOGINS = re.compile(r"WARNING: .*WITHOUT LOGINS.*read, change and delete everything", re.DOTALL)


@dataclass(frozen=True)
class ContainerNode:
    """A node of a compose file or a manifest: its words for the entry point, its environment, and its files."""

    host: str
    words: list[str]
    environment: dict[str, str]
    files: dict[str, str]
    """The source of each file by its path in the container: a path from the root, or the name of a secret and a key."""


def of_compose() -> Iterator[ContainerNode]:
    document = yaml.safe_load((DEPLOY / "container/compose-secured.yaml").read_text())
    sources = {name: f"deploy/container/{entry['file']}" for name, entry in document["secrets"].items()}
    for host, service in document["services"].items():
        if "secrets" in service:
            environment = {name: interpolated(value) for name, value in service["environment"].items()}
            files = {f"/run/secrets/{name}": sources[name] for name in service["secrets"]}
            yield ContainerNode(host, service["command"], environment, files)


def interpolated(text: str) -> str:
    """Replace the variables of compose by their defaults."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


def of_kubernetes(secrets: Mapping[str, Mapping[str, str]]) -> Iterator[ContainerNode]:
    for name in ("quorum", "broker"):
        found = list(yaml.safe_load_all((DEPLOY / f"kubernetes-secured/{name}.yaml").read_text()))
        (pod,) = [entry["spec"]["template"]["spec"] for entry in found if entry["kind"] == "StatefulSet"]
        (container,) = pod["containers"]
        environment = {entry["name"]: entry.get("value", "a-machine") for entry in container["env"]}
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        files = {
            f"{mount['mountPath']}/{key}": source
            for mount in container["volumeMounts"]
            if mount["name"] in volumes
            for secret in secrets_of(volumes[mount["name"]])
            for key, source in secrets[secret].items()
        }
        yield ContainerNode(f"ottla-{name}-1", container["args"], environment, files)


def secrets_of(volume: Mapping[str, Any]) -> Iterable[str]:
    if "secret" in volume:
        return [volume["secret"]["secretName"]]
    return [source["secret"]["name"] for source in volume["projected"]["sources"]]


def commands(heading: str) -> list[str]:
    """Return the commands of a section of the README up to a start of the cluster."""
    text = (DEPLOY / "README.md").read_text().partition(f"\n## {heading}\n")[2]
    found = re.search(r"^```\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1].splitlines()


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run the commands of the README that make secrets and certificates."""
    return made_in(tmp_path_factory.mktemp("checkout"))


def made_in(folder: Path) -> Path:
    for name in ("container", "kubernetes-secured"):
        (folder / "deploy" / name).mkdir(parents=True)
    lines = [line for line in (*commands("Compose"), *commands("Kubernetes")) if makes_files(line)]
    assert len(lines) == 13
    environment = os.environ | {
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "OTTLA_CONFIG_DIR": str(folder / "client"),
    }
    subprocess.run(
        ["bash", "-e", "-c", "\n".join(lines)], cwd=folder, env=environment, check=True, timeout=120
    )
    return folder


def makes_files(line: str) -> bool:
    return line.startswith(("umask", "openssl", "ottla", "chmod"))


def test_secrets_are_for_their_owner_alone_and_stay_out_of_images(tmp_path: Path) -> None:
    folder = made_in(tmp_path / "checkout")
    made = {file for file in folder.rglob("*") if file.is_file() and "client" not in file.parts}
    ignored = {path for pattern in SECRETS for path in folder.glob(pattern)}
    assert {file for file in made if not ignored & {file, *file.parents}} == set()
    others = {str(file.relative_to(folder)) for file in made if file.stat().st_mode & 0o077}
    assert others == {"deploy/container/tls/ca.pem"}


def kubernetes_secrets(folder: Path) -> dict[str, dict[str, str]]:
    """Return the sources of the secrets that the README creates with `kubectl`, by secret and key."""
    made: dict[str, dict[str, str]] = {}
    for line in commands("Kubernetes"):
        found = re.match(r"kubectl -n ottla create secret generic (\S+) (.*)", line)
        if found is None:
            continue
        secret = made.setdefault(found[1], {})
        for path in re.findall(r"--from-file=(\S+)", found[2]):
            secret[Path(path).name] = path
        for key in re.findall(r"--from-literal=([\w.]+)=", found[2]):
            (folder / key).write_text(hashlib.sha256(key.encode()).hexdigest())
            secret[key] = key
    return made


def checked(node: ContainerNode, folder: Path, programs: Path) -> dict[str, Any]:
    """Return the report of `ottla config check` on the settings that the entry point gives to a node."""
    check = programs / "ottla"
    check.write_text(f'#!/bin/sh\nexec {BIN}/ottla config check --role "$1" -c "$3" -o json\n')
    check.chmod(0o755)
    environment = {name: placed(value, node, folder) for name, value in node.environment.items()}
    for source in node.files.values():
        (folder / source).chmod(0o600)
    done = subprocess.run(
        [DEPLOY / "container/entrypoint.sh", *node.words],
        env=environment | {"HOSTNAME": node.host, "PATH": f"{programs}:/usr/bin:/bin"},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def placed(value: str, node: ContainerNode, folder: Path) -> str:
    """Return a value that is the path of one of the container's files as the path of its source."""
    return str(folder / node.files[value]) if value in node.files else value


@pytest.mark.parametrize("host", ["quorum-2", "broker-3", "ottla-quorum-1", "ottla-broker-1"])
def test_a_node_would_start_secured(host: str, checkout: Path, tmp_path: Path) -> None:
    (node,) = [
        found for found in (*of_compose(), *of_kubernetes(kubernetes_secrets(checkout))) if found.host == host
    ]
    report = checked(node, checkout, tmp_path)
    assert report["remarks"] == [OPEN_METRICS]
    assert report["authorizer"]["super_users"] == ["User:admin"]
    assert report["link_encryption"] == "required"
    if report["role"] == "broker":
        for listener in report["listeners"]:
            assert listener["protocol"] == "SASL_SSL"
            assert [mechanism["name"] for mechanism in listener["mechanisms"]] == ["SCRAM-SHA-512"]
    else:
        _, option, word, last = node.words
        assert (option, last) == ("--add-scram", "--unless-formed")
        (file,) = re.findall(r"password-file=([^\],]+)", word)
        assert parse_first_user(word.replace(file, placed(file, node, checkout)))[0] == "admin"


@pytest.mark.parametrize("name", ["quorum", "broker"])
def test_manifests_differ_in_security_alone(name: str) -> None:
    plain, secured = (
        [
            without_security(entry)
            for entry in yaml.safe_load_all((DEPLOY / folder / f"{name}.yaml").read_text())
        ]
        for folder in ("kubernetes", "kubernetes-secured")
    )
    assert plain == secured


def without_security(document: Any) -> Any:
    if document["kind"] == "StatefulSet":
        pod = document["spec"]["template"]["spec"]
        pod.pop("volumes")
        for container in pod["containers"]:
            container["args"] = container["args"][:1]
            container["volumeMounts"] = [
                mount for mount in container["volumeMounts"] if mount["name"] != "tls"
            ]
            container["env"] = [entry for entry in container["env"] if not about_security(entry["name"])]
    return document


def about_security(name: str) -> bool:
    words = ("SSL", "SASL", "AUTHORIZER", "SUPER_USERS", "LINK_ENCRYPTION", "PROTOCOL")
    return any(word in name for word in words)


@pytest.mark.parametrize(
    "path",
    ["config/broker.yaml", "container/compose.yaml", "kubernetes/quorum.yaml", "kubernetes/broker.yaml"],
)
def test_files_without_logins_say_what_that_means(path: str) -> None:
    assert NO_LOGINS.search((DEPLOY / path).read_text())


def test_the_readme_says_it_in_bold() -> None:
    text = " ".join((DEPLOY / "README.md").read_text().split())
    for bold in (
        "**Without TLS and logins, everyone who reaches a broker can read, change and delete everything.**",
        "**`compose.yaml` has no TLS and no logins: every client that reaches the ports can read, change and delete",
        "**`deploy/kubernetes/` has no TLS and no logins: every pod that reaches a broker can read,",
    ):
        assert bold in text


def test_the_entry_point_forms_a_secured_cluster_and_starts_it_again(
    checkout: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The second start repeats the command of the first, as a supervisor does."""
    root = tmp_path_factory.mktemp("secured")
    for folder in (root, *root.parents):
        if folder.is_relative_to("/tmp") and folder != Path("/tmp"):
            folder.chmod(0o755)
    data, tls = [root / "quorum-0", root / "broker-0"], root / "tls"
    for folder in (*data, tls):
        folder.mkdir()
    for file in ("tls/broker.pem", "tls/ca.pem", "cluster.secret", "admin.secret"):
        copied = tls / Path(file).name
        copied.write_bytes((checkout / "deploy/container" / file).read_bytes())
        copied.chmod(0o644)
    quorum, kafka, metrics = free_port(), free_port(), [free_port(), free_port()]
    both = {
        "KAFKA_CLUSTER_ID": "test",
        "KAFKA_CLUSTER_SECRET_FILE": str(tls / "cluster.secret"),
        "KAFKA_CONTROLLER_QUORUM_VOTERS": f"101@127.0.0.1:{quorum}",
        "KAFKA_AUTHORIZER_CLASS_NAME": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "KAFKA_SUPER_USERS": "User:admin",
    }
    of_quorum = both | {
        "HOSTNAME": "quorum-0",
        "KAFKA_LISTENERS": f"CONTROLLER://127.0.0.1:{quorum}",
        "KAFKA_METRICS_LISTENER": f"127.0.0.1:{metrics[0]}",
    }
    of_broker = both | {
        "HOSTNAME": "broker-0",
        "OTTLA_PROTOCOL": "SASL_SSL",
        "KAFKA_LISTENERS": f"SASL_SSL://127.0.0.1:{kafka}",
        "KAFKA_ADVERTISED_LISTENERS": f"SASL_SSL://localhost:{kafka}",
        "KAFKA_METRICS_LISTENER": f"127.0.0.1:{metrics[1]}",
        "KAFKA_SASL_ENABLED_MECHANISMS": "SCRAM-SHA-512",
        "KAFKA_SSL_KEYSTORE_LOCATION": str(tls / "broker.pem"),
        "KAFKA_SSL_TRUSTSTORE_LOCATION": str(tls / "ca.pem"),
    }
    word = f"SCRAM-SHA-512=[name=admin,password-file={tls / 'admin.secret'}]"
    (profile,) = [line for line in commands("Compose") if line.startswith("ottla profile create")]
    options = [word for word in shlex.split(profile) if word.startswith(("security.", "sasl.", "ssl."))]
    words = [part for option in options for part in ("-X", option)]
    environment = os.environ | {"OTTLA_SASL_PASSWORD": (tls / "admin.secret").read_text().strip()}
    for _ in range(2):
        with (
            entry_point("quorum", data[0], of_quorum, "--add-scram", word, "--unless-formed"),
            entry_point("broker", data[1], of_broker),
        ):
            wait_until(lambda: all(map(is_ready, metrics)), "a quorum node and a broker that are ready")
            listing = [BIN / "ottla", "user", "list", "-b", f"localhost:{kafka}", *words]
            done = subprocess.run(
                listing,
                cwd=checkout,
                env=environment,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert "admin\tSCRAM-SHA-512" in done.stdout, done.stderr
        (tls / "admin.secret").unlink(missing_ok=True)
