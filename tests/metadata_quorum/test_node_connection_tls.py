"""TLS on the links of nodes: accepted and refused peers, and the messages at each end."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from ottla.cli.connection.plain_quorum_link import PlainQuorumLink
from ottla.cli.nodes.quorum_tls import QuorumTls, quorum_tls
from ottla.metadata_quorum.node_connection import NodeConnection, NodeConnectionLimits, dial
from ottla.metadata_quorum.server import QuorumServer
from ottla.protocol.messages.quorum_session import Unsubscribe
from ottla.protocol.session.handshake import HandshakeError, Identity, LinkSecurity, Role
from ottla.protocol.session.node_secrets import Secrets
from ottla.protocol.settings.config_key import ConfigError
from tests.certificates import Authority

SECURITY = LinkSecurity(Secrets((b"secret of a test cluster, 32 byte",)))
HOST = "127.0.0.1"
NAMED = "User:CN=quorum-1;User:CN=broker-1"


class Heard:
    """A recorder of a link's payloads."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []
        self.came = asyncio.Event()

    def payload_received(self, link: NodeConnection, payload: bytes) -> None:
        self.payloads.append(payload)
        self.came.set()

    def link_writable(self, link: NodeConnection) -> None: ...
    def link_closed(self, link: NodeConnection, reason: str) -> None: ...


class Nodes:
    """Certificates of some nodes, by two authorities."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ours, self.theirs = Authority(folder / "ours"), Authority(folder / "theirs")

    def settings(self, name: str, *, foreign: bool = False, **others: str) -> dict[str, str]:
        authority = self.theirs if foreign else self.ours
        issued = authority.issue(f"{name}{foreign}", HOST, "localhost", common_name=name)
        settings = {
            "listener.security.protocol.map": "CONTROLLER:SSL",
            "ssl.keystore.location": str(issued.both),
            "ssl.truststore.location": str(self.ours.file),
            "ssl.principal.mapping.rules": r"RULE:^.*?(CN=[^,]+).*$/$1/",
            "ottla.node.principals": NAMED,
        }
        return settings | {key.replace("_", "."): text for key, text in others.items()}

    def tls(self, name: str, *, foreign: bool = False, **others: str) -> QuorumTls:
        made = quorum_tls(self.settings(name, foreign=foreign, **others), HOST)
        assert made is not None
        return made


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Nodes:
    return Nodes(tmp_path_factory.mktemp("tls"))


def identity(node_id: int) -> Identity:
    return Identity(node_id, bytes([node_id]) * 16, "c")


def run(scenario: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await scenario

    uvloop.run(bounded())


async def serving(tls: QuorumTls | None, heard: Heard, timeout_ms: int = 3000) -> QuorumServer:
    server = QuorumServer(
        HOST,
        0,
        SECURITY,
        identity(1),
        {Role.BROKER: lambda link: heard},
        lambda heartbeat: False,
        limits=NodeConnectionLimits(handshake_timeout_ms=timeout_ms),
        tls=tls,
    )
    await server.start()
    return server


async def dialled(server: QuorumServer, tls: QuorumTls | None, heard: Heard) -> NodeConnection:
    return await dial(
        HOST,
        server.port,
        security=SECURITY,
        identity=identity(2),
        role=Role.BROKER,
        choose_handler=lambda link: heard,
        tls=tls,
    )


def test_named_nodes_speak_over_tls(nodes: Nodes) -> None:
    async def scenario() -> None:
        heard, answers = Heard(), Heard()
        server = await serving(nodes.tls("quorum-1"), heard)
        link = await dialled(server, nodes.tls("broker-1"), answers)
        assert link.transport is not None
        assert isinstance(link.transport.get_extra_info("ssl_object"), ssl.SSLObject)
        payload = bytes(range(256)) * 4000
        assert link.send(payload)
        await heard.came.wait()
        assert heard.payloads == [payload]
        await server.stop()
        await link.closed
        assert link.closed_by_peer

    run(scenario())


def refusal_of(server_tls: QuorumTls | None, client_tls: QuorumTls | None, timeout_ms: int = 3000) -> str:
    """Return the error at the dialling end."""
    refusals: list[str] = []

    async def scenario() -> None:
        heard = Heard()
        server = await serving(server_tls, heard, timeout_ms)
        with pytest.raises(ConnectionError) as raised:
            await dialled(server, client_tls, Heard())
        refusals.append(str(raised.value))
        assert not heard.payloads
        await server.stop()

    run(scenario())
    return refusals[0]


def test_a_certificate_that_is_not_on_the_list_gets_nowhere_and_is_named_at_both_ends(
    nodes: Nodes, caplog: pytest.LogCaptureFixture
) -> None:
    reason = "User:CN=stolen may not act as a node: it is not among ottla.node.principals"
    assert f"it refuses this node: {reason}" in refusal_of(nodes.tls("quorum-1"), nodes.tls("stolen"))
    assert f"is refused: {reason}" in caplog.text


def test_a_server_that_is_not_on_the_list_is_told_nothing(nodes: Nodes) -> None:
    refusal = refusal_of(nodes.tls("stolen"), nodes.tls("broker-1"))
    assert "User:CN=stolen may not act as a node" in refusal


def test_certificates_of_another_authority_are_refused_by_both_ends(
    nodes: Nodes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    assert "this node's certificate" in refusal_of(nodes.tls("quorum-1"), nodes.tls("broker-1", foreign=True))
    assert "did not prove itself: TLS: the other end's certificate is refused: " in caplog.text
    assert "the other end's certificate is refused" in refusal_of(
        nodes.tls("quorum-1", foreign=True), nodes.tls("broker-1")
    )


def test_who_has_no_tls_is_told_so(nodes: Nodes, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    refusal_of(nodes.tls("quorum-1"), None, timeout_ms=200)
    assert "did not begin TLS, which this port expects" in caplog.text
    assert "does not speak TLS on this connection" in refusal_of(None, nodes.tls("broker-1"))


def test_a_command_speaks_over_tls_and_says_who_is_refused(nodes: Nodes) -> None:
    def ask(server: QuorumServer, tls: QuorumTls | None) -> None:
        with PlainQuorumLink((HOST, server.port), SECURITY, "c", Role.BROKER, 5.0, tls) as link:
            link.send(Unsubscribe())

    async def scenario() -> None:
        heard = Heard()
        server = await serving(nodes.tls("quorum-1"), heard)
        await asyncio.to_thread(ask, server, nodes.tls("broker-1"))
        await heard.came.wait()
        with pytest.raises(
            HandshakeError, match="it refuses this node: User:CN=stolen may not act as a node"
        ):
            await asyncio.to_thread(ask, server, nodes.tls("stolen"))
        await server.stop()

    run(scenario())


def test_a_renewed_certificate_is_shown_to_who_connects_next(nodes: Nodes, tmp_path: Path) -> None:
    own = tmp_path / "own.pem"
    settings = nodes.settings("quorum-1") | {
        "ssl.keystore.location": str(own),
        "ssl.allow.dn.changes": "true",
    }
    own.write_bytes(nodes.ours.issue("first", HOST, "localhost", common_name="quorum-1").both.read_bytes())
    server_tls = quorum_tls(settings, HOST)
    assert server_tls is not None

    async def shown(server: QuorumServer) -> bytes:
        link = await dialled(server, nodes.tls("broker-1"), Heard())
        assert link.transport is not None
        certificate: bytes = link.transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
        link.close("seen")
        return certificate

    async def scenario() -> None:
        server = await serving(server_tls, Heard())
        before = await shown(server)
        own.write_bytes(
            nodes.ours.issue("second", HOST, "localhost", common_name="quorum-1").both.read_bytes()
        )
        server_tls.look_again()
        while await shown(server) == before:
            await asyncio.sleep(0.02)
        await server_tls.close()
        await server.stop()

    run(scenario())


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ({"ottla_node_principals": ""}, "ottla.node.principals has to name"),
        ({"ottla_node_principals": "CN=ann"}, "ottla.node.principals: 'CN=ann' is no principal"),
        ({"ssl_truststore_location": ""}, "listener.name.controller.ssl.truststore.location"),
        ({"ssl_keystore_location": ""}, "listener.name.controller.ssl.keystore.location"),
        ({"ssl_keystore_location": "/none/own.pem"}, "ssl.keystore.location.*/none/own.pem"),
        ({"listener_name_controller_ssl_client_auth": "none"}, "client.auth is 'none': it must be required"),
        (
            {"listener_security_protocol_map": "CONTROLLER:SASL_SSL"},
            "is SASL_SSL: it must be SSL or PLAINTEXT",
        ),
        ({"listener_security_protocol_map": ""}, "the quorum's listener has no TLS"),
        ({"listener_security_protocol_map": "CONTROLLER=SSL"}, "'CONTROLLER=SSL' is not of the form"),
        ({"listener_security_protocol_map": "CONTROLLER:PLAINTEXT,CONTROLLER:SSL"}, "stands there twice"),
    ],
)
def test_what_would_leave_it_open_is_no_start(nodes: Nodes, others: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        quorum_tls(nodes.settings("quorum-1", **others), HOST)


def test_the_key_for_clients_of_all_listeners_does_not_count(nodes: Nodes) -> None:
    made = nodes.tls("quorum-1", ssl_client_auth="none")
    assert made.accepting.verify_mode is ssl.CERT_REQUIRED


def test_remarks_are_about_what_a_node_is_dialled_by_and_shows(nodes: Nodes) -> None:
    def remarks(host: str | None, **others: str) -> list[str]:
        made = quorum_tls(nodes.settings("quorum-1", **others), host)
        assert made is not None
        return [line for line in made.remarks if " expires on " not in line]

    (remark,) = remarks(HOST, ssl_principal_mapping_rules="DEFAULT")
    assert "this node is User:CN=quorum-1,OU=" in remark
    assert "which is not among ottla.node.principals" in remark
    (remark,) = remarks(HOST, ssl_principal_mapping_rules="RULE:^nobody$/x/")
    assert "the certificate of this node names no principal" in remark
    (remark,) = remarks("quorum-1.internal")
    assert "not for quorum-1.internal, where nodes dial it (controller.quorum.voters)" in remark
    assert remarks(None) == []
