"""Kafka's own tools on a secured cluster, by an administrator who logs in; tests/compat/ plays the same to Kafka."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import java
from tests.integration.secured_cells import ADMIN, ADMIN_PASSWORD, PASSWORD, PREFIXES, USER
from tests.integration.secured_tools import ACLS, CONFIGS, SCENES, SecuredShell, client_config
from tests.integration.tls_cluster import TlsCluster, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.java, java.needs_java, pytest.mark.timeout(240)]
COUNT = 500


@pytest.fixture
def shell(tools: java.Tools, secured: TlsCluster, tmp_path: Path) -> SecuredShell:
    config = client_config(tmp_path / "admin.properties", ADMIN, ADMIN_PASSWORD, secured.ca_file)
    return SecuredShell(tools, secured.bootstrap("LOGINS"), config)


@pytest.mark.parametrize("scene", SCENES)
def test_an_administrator(scene: Callable[[SecuredShell], None], shell: SecuredShell) -> None:
    scene(shell)


def test_a_host_that_is_no_address_is_refused(shell: SecuredShell) -> None:
    bob = ("--allow-principal", "User:bob", "--operation", "Read", "--topic", "named")
    said = shell(ACLS, "--add", *bob, "--allow-host", "example.org", status=1)
    assert "Invalid host example.org: it has to be *, an IP address, or a network" in said
    shell(ACLS, "--add", *bob, "--allow-host", "10.0.0.1/8")
    assert shell.acls("--topic", "named") == {
        ("TOPIC", "named", "LITERAL"): {("User:bob", "10.0.0.0/8", "READ", "ALLOW")}
    }
    shell(ACLS, "--remove", *bob, "--allow-host", "10.0.0.1/8", "--force")
    assert shell.acls("--topic", "named") == {}


def test_whoever_is_no_administrator_is_refused(
    tools: java.Tools, secured: TlsCluster, tmp_path: Path
) -> None:
    for password, refusal in (
        (PASSWORD, "ClusterAuthorizationException"),
        ("wrong", "Authentication failed"),
    ):
        config = client_config(tmp_path / "ann.properties", USER, password, secured.ca_file)
        ann = SecuredShell(tools, secured.bootstrap("LOGINS"), config)
        assert refusal in ann(ACLS, "--list", status=1)


def test_the_console_tools_and_the_verifiable_producer(shell: SecuredShell) -> None:
    topic = f"{PREFIXES[USER]}console"
    lines = "".join(f"line {number}\n" for number in range(COUNT))
    producing = java.command("org.apache.kafka.tools.ConsoleProducer", *shell.arguments, "--topic", topic)
    done = subprocess.run(producing, input=lines, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    reading = ("--topic", topic, "--group", topic, "--from-beginning", "--timeout-ms", "30000")
    said = shell("org.apache.kafka.tools.consumer.ConsoleConsumer", *reading, "--max-messages", str(COUNT))
    assert sorted(line for line in said.splitlines() if line.startswith("line ")) == sorted(
        lines.splitlines()
    )
    said = java.run(
        "org.apache.kafka.tools.VerifiableProducer",
        *(*shell.arguments, "--topic", topic, "--acks", "-1", "--max-messages", str(COUNT)),
    )
    names = [json.loads(line)["name"] for line in said.splitlines() if line.startswith("{")]
    assert names.count("producer_send_success") == COUNT
    assert "producer_send_error" not in names


def test_keys_of_a_listener_are_renewed(shell: SecuredShell, secured: TlsCluster) -> None:
    own = secured.brokers[0]
    renewed = secured.authority.issue(
        "127.0.0.1", "localhost", common_name="broker-1", organization_unit="brokers"
    )
    renewed.pem_file(own.key_file)
    listener = f"listener.name.logins.ssl.keystore.location={own.key_file}"
    broker = ("--entity-type", "brokers", "--entity-name", "1")
    assert "Completed updating config for broker 1" in shell(
        CONFIGS, "--alter", *broker, "--add-config", listener
    )
    wait_until(lambda: "listener LOGINS has new keys and certificates" in own.log, "the new certificate", 5)
    described = shell(CONFIGS, "--describe", *broker)
    assert listener in described
    assert shell.acls("--principal", "User:nobody") == {}, "logins go on with the new keys"
