"""All users are locked out of a secured cluster, and `ottla security recover` opens it again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.test_up_secure import ottla
from tests.cluster import RunningCluster, running_cluster, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("test_recovery")]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with running_cluster(
        tmp_path_factory.mktemp("locked"), quorum=3, brokers=1, arguments=("--secure",)
    ) as running:
        yield running


def recover(cluster: RunningCluster, *words: str, fails: bool = False, **variables: str) -> str:
    file = cluster.directory / "config" / "quorum-101.properties"
    everything = ("security", "recover", "-c", str(file), *words)
    return ottla(*everything, config=cluster.directory / "none", fails=fails, **variables)


def test_a_password_is_set_when_nobody_can_log_in(cluster: RunningCluster) -> None:
    config = cluster.directory / "client"
    ottla("user", "delete", "admin", "--yes", config=config)
    wait_until(
        lambda: "the login as 'admin'" in ottla("topic", "list", config=config, fails=True),
        "all users locked out",
    )
    file = config / "admin.password"
    said = recover(cluster, "--set-password", "admin", "--password-file", str(file), "-o", "json")
    assert json.loads(said) == [{"user": "admin", "mechanism": "SCRAM-SHA-512", "result": "set"}]
    wait_until(lambda: can_list(config), "a login with the new password")
    for node in cluster.quorum:
        wait_until(
            lambda node=node: "sets the password of 'admin' for SCRAM-SHA-512" in node.log(),  # type: ignore[misc]
            f"the warning in the log of {node.id}",
        )
        assert file.read_text().strip() not in node.log()


def can_list(config: Path) -> bool:
    try:
        ottla("topic", "list", config=config)
    except AssertionError:
        return False
    return True


def test_acls_are_created_and_removed(cluster: RunningCluster) -> None:
    wanted = ("--principal", "User:ops", "--cluster")
    said = recover(cluster, "--create-acl", *wanted, "--operation", "ALTER", "--operation", "DESCRIBE")
    assert said.count("User:ops") == 2
    config = cluster.directory / "client"
    wait_until(lambda: "User:ops" in ottla("acl", "list", config=config), "the new ACLs at the broker")
    assert recover(cluster, "--delete-acl", *wanted, "--yes").count("User:ops") == 2
    wait_until(lambda: "User:ops" not in ottla("acl", "list", config=config), "no such ACLs at the broker")


def test_it_works_while_a_quorum_node_is_down(cluster: RunningCluster) -> None:
    victim = cluster.quorum_leader()
    victim.kill9()
    try:
        recover(cluster, "--set-password", "bea", OTTLA_NEW_PASSWORD="of bea")
    finally:
        victim.restart()
    assert "bea" in ottla("user", "list", config=cluster.directory / "client")


def test_what_it_refuses(cluster: RunningCluster, tmp_path: Path) -> None:
    assert "--create-acl needs --principal and --operation" in recover(cluster, "--create-acl", fails=True)
    asked = ("--principal", "User:a", "--operation", "READ")
    assert "an ACL needs a resource" in recover(cluster, "--create-acl", *asked, fails=True)
    assert "no colon is present" in recover(
        cluster, "--create-acl", "--principal", "a", "--operation", "READ", "--topic", "t", fails=True
    )
    settings = (cluster.directory / "config" / "broker-1.properties").read_text()
    other = tmp_path / "secret"
    other.write_text("0123456789abcdef" * 2 + "of another cluster")
    own = str(cluster.directory / "cluster.secret")
    assert own in settings
    file = tmp_path / "broker.properties"
    file.write_text(settings.replace(own, str(other)))
    said = ottla(
        "security", "recover", "-c", str(file), "--set-password", "eve",
        config=tmp_path, fails=True, OTTLA_NEW_PASSWORD="x",
    )  # fmt: skip
    assert "it has another secret (cluster.secret.file), or an older version" in said
    assert "eve" not in ottla("user", "list", config=cluster.directory / "client")
