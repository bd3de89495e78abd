"""TLS on the quorum's port: real nodes with changing certificates, and nodes that must be refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla import Admin
from ottla.cli.main import main
from ottla.client.admin import NewTopic
from tests.certificates import Authority
from tests.cli.test_up_secure import ottla
from tests.cluster import wait_until
from tests.integration.quorum_tls_nodes import (
    HOST,
    VOTERS,
    QuorumTlsNodes,
    quorum_tls_nodes,
    replace_file,
)

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

START_S = 60.0
RELOADED = "listener CONTROLLER has new keys and certificates"
KEPT = "listener CONTROLLER goes on with its old keys and certificates"


def test_three_nodes_and_brokers_over_tls_and_who_does_not_get_in(tmp_path: Path) -> None:
    with quorum_tls_nodes(tmp_path, 1, 2, 3, 4) as nodes:
        for node_id in (*VOTERS, 1):
            nodes.issue_and_start(node_id)
        wait_until(lambda: nodes.serves(1), "a broker over TLS", START_S)

        # A node dies, the leader maybe, and the others go on over their links.
        nodes.kill(101)
        nodes.issue_and_start(2)
        wait_until(lambda: nodes.serves(2), "a broker after a failover", START_S)
        nodes.start(101)

        # A stolen certificate of the same authority, which is not on the list.
        nodes.issue(3, name="stolen")
        nodes.start(3)
        refusal = "User:stolen may not act as a node: it is not among ottla.node.principals"
        wait_until(lambda: f"it refuses this node: {refusal}" in nodes.log(3), "a refusal", START_S)
        assert any(refusal in nodes.log(voter) for voter in VOTERS)

        # A certificate of another authority.
        nodes.issue(4, authority=Authority(tmp_path / "another"))
        nodes.start(4)
        wait_until(
            lambda: "this node's certificate" in nodes.log(4), "a refusal of another authority", START_S
        )
        assert not nodes.serves(3)
        assert not nodes.serves(4)

        # A node without TLS.
        nodes.kill(4)
        nodes.start(4, listener_security_protocol_map="PLAINTEXT:PLAINTEXT", ottla_node_principals="")
        wait_until(lambda: "does it expect TLS?" in nodes.log(4), "a hint to TLS", START_S)
        assert not nodes.serves(4)


def test_the_lines_of_issued_certificates(tmp_path: Path) -> None:
    """`ottla security certificate` writes settings that accept the certificates of all nodes, and of no client."""
    authority, files = tmp_path / "authority", tmp_path / "files"
    assert main(["security", "authority", str(authority)]) == 0
    issue = ["security", "certificate", "--ca", str(authority), "--into", str(files)]
    with quorum_tls_nodes(tmp_path, 1, 2) as nodes:
        for node_id in (*VOTERS, 1):
            assert main([*issue, f"n{node_id}", "--host", HOST]) == 0
            nodes.start(node_id, **lines_of(files / f"n{node_id}.properties"))
        wait_until(lambda: nodes.serves(1), "a broker over TLS", START_S)
        assert main([*issue, "ann", "--client"]) == 0
        stolen = {"ssl_keystore_location": str(files / "ann.pem")}
        nodes.start(2, **lines_of(files / "n1.properties") | stolen)
        wait_until(lambda: "not for servers" in nodes.log(2), "a refusal", START_S)


def lines_of(file: Path) -> dict[str, str]:
    """Return the settings in a file, those in comments too, with _ in place of dots; the listeners are the helper's."""
    lines = [line.removeprefix("#") for line in file.read_text().splitlines() if not line.startswith("# ")]
    found = {key.replace(".", "_"): value for key, value in (line.split("=", 1) for line in lines)}
    del found["listener_security_protocol_map"]
    return found | {"ssl_principal_mapping_rules": ""}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuorumTlsNodes]:
    """Run three quorum nodes and a broker that serves."""
    with quorum_tls_nodes(tmp_path_factory.mktemp("nodes"), 1, 2) as nodes:
        for node_id in (*VOTERS, 1):
            nodes.issue_and_start(node_id)
        wait_until(lambda: nodes.serves(1), "a broker over TLS", START_S)
        yield nodes


def looked(nodes: QuorumTlsNodes, node_id: int, text: str) -> str:
    """Make a node reload its files, and return its log line about the result."""
    before = nodes.log(node_id).count(text)
    nodes.look_at_keys(node_id)
    wait_until(lambda: nodes.log(node_id).count(text) > before, f"node {node_id}: {text}")
    return [line for line in nodes.log(node_id).splitlines() if text in line][-1]


def create_topic(nodes: QuorumTlsNodes, name: str) -> None:
    """Create a topic by the broker, which uses its link to the quorum's leader."""

    async def create() -> None:
        async with Admin(bootstrap_servers=f"{HOST}:{nodes.ports[1]}") as admin:
            await admin.create_topics([NewTopic(name, 1, 1)])

    asyncio.run(create())


def test_a_quorum_node_shows_its_new_certificate_upon_sighup(running: QuorumTlsNodes) -> None:
    first = running.shown(101)
    assert first == running.in_file(101)
    running.issue(101)
    assert running.shown(101) == first, "it got no signal"
    looked(running, 101, RELOADED)
    assert running.shown(101) == running.in_file(101) != first
    create_topic(running, "renewed")


def garbage(nodes: QuorumTlsNodes, node_id: int) -> str:
    replace_file(nodes.key_file(node_id), b"garbage")
    return "is neither PEM nor PKCS12 nor JKS"


def no_file(nodes: QuorumTlsNodes, node_id: int) -> str:
    nodes.key_file(node_id).unlink()
    return "cannot be read: No such file"


def of_another_authority(nodes: QuorumTlsNodes, node_id: int) -> str:
    nodes.issue(node_id, authority=Authority(nodes.folder / f"another-{node_id}"))
    return "nodes could not connect to each other: the old trust store refuses the new certificate"


def of_another_node(nodes: QuorumTlsNodes, node_id: int) -> str:
    nodes.issue(node_id, name="node-103")
    return "(ssl.allow.dn.changes allows that)"


@pytest.mark.parametrize("spoil", [garbage, no_file, of_another_authority, of_another_node])
@pytest.mark.parametrize("node_id", [102, 1])
def test_a_bad_certificate_leaves_the_old_in_force_and_is_told(
    running: QuorumTlsNodes, spoil: Callable[[QuorumTlsNodes, int], str], node_id: int
) -> None:
    kept = running.key_file(node_id).read_bytes()
    before = running.shown(102)
    try:
        cause = spoil(running, node_id)
        line = looked(running, node_id, KEPT)
        assert str(running.key_file(node_id)) in line
        assert cause in line
        assert running.shown(102) == before
        create_topic(running, f"kept-{node_id}-{spoil.__name__}")
    finally:
        replace_file(running.key_file(node_id), kept)
    looked(running, node_id, RELOADED)


def test_the_authority_changes_while_all_nodes_run(running: QuorumTlsNodes) -> None:
    """The steps are: trust both, change the certificates, trust only the new authority, each by SIGHUP.

    Then no old certificate connects any more, and all nodes reconnect with the reloaded files.
    """
    old, new = running.authority, Authority(running.folder / "new-ca")
    everybody = (*VOTERS, 1)
    replace_file(running.trust_file, old.file.read_bytes() + new.file.read_bytes())
    for node_id in everybody:
        looked(running, node_id, RELOADED)
    running.authority = new
    for node_id in everybody:
        running.issue(node_id)
        looked(running, node_id, RELOADED)
    replace_file(running.trust_file, new.file.read_bytes())
    for node_id in everybody:
        looked(running, node_id, RELOADED)
    for voter in VOTERS:
        running.kill(voter)
        running.start(voter)
        create_topic(running, f"after-{voter}")
    running.issue(2, authority=old)
    running.start(2)
    wait_until(
        lambda: (
            "the other end's certificate is refused" in running.log(2)
            or "not believe this node's certificate" in running.log(2)
        ),
        "a refusal of the old authority",
    )
    running.kill(2)


def recover(nodes: QuorumTlsNodes, node_id: int, *words: str, fails: bool = False) -> str:
    everything = ("security", "recover", "-c", str(nodes.settings_file(node_id)), *words)
    return ottla(*everything, config=nodes.folder / "none", fails=fails, OTTLA_NEW_PASSWORD="a long one")


@pytest.mark.parametrize("node_id", [101, 1])
def test_recovery_by_the_file_of_a_quorum_node_or_a_broker(running: QuorumTlsNodes, node_id: int) -> None:
    user = f"admin-{node_id}"
    said = recover(running, node_id, "--set-password", user, "-o", "json")
    assert json.loads(said) == [{"user": user, "mechanism": "SCRAM-SHA-512", "result": "set"}]
    for voter in VOTERS:
        wait_until(
            lambda voter=voter: f"sets the password of '{user}'" in running.log(voter),  # type: ignore[misc]
            f"the warning in the log of {voter}",
        )
    bootstrap = ("-b", f"{HOST}:{running.ports[1]}")
    wait_until(
        lambda: user in ottla("user", "list", *bootstrap, config=running.folder / "none"),
        "the user at the broker",
    )


def test_recovery_needs_a_certificate_of_a_node(running: QuorumTlsNodes) -> None:
    running.issue(2, name="stolen")
    running.settings_file(2).write_text(
        running.settings_file(1).read_text().replace(str(running.key_file(1)), str(running.key_file(2)))
    )
    said = recover(running, 2, "--set-password", "eve", fails=True)
    assert "User:stolen may not act as a node: it is not among ottla.node.principals" in said
    running.issue(2, authority=Authority(running.folder / "foreign"))
    said = recover(running, 2, "--set-password", "eve", fails=True)
    assert "not believe this node's certificate" in said
    bootstrap = ("-b", f"{HOST}:{running.ports[1]}")
    assert "eve" not in ottla("user", "list", *bootstrap, config=running.folder / "none")


def test_a_file_is_checked_as_it_starts(running: QuorumTlsNodes) -> None:
    def check(node_id: int, *words: str, fails: bool = False) -> str:
        file = str(running.settings_file(node_id))
        return ottla("config", "check", "-c", file, *words, config=running.folder / "none", fails=fails)

    own = "CN=node-101"
    assert own in check(101)
    assert "quorum node 101 would start" in check(101)
    assert "certificate for the quorum: CN=node-1" in check(1)
    for node_id in (101, 1):
        key = "ssl.keystore.location"
        assert f"{key}: /none: cannot be read" in check(node_id, "--set", f"{key}=/none", fails=True)
        said = check(node_id, "--set", "ottla.node.principals=", fails=True)
        assert "ottla.node.principals has to name whose certificates are of nodes" in said
        said = check(node_id, "--set", "ssl.keystore.location=", fails=True)
        assert "give listener.name.controller.ssl.keystore.location, or ssl.keystore.location" in said
