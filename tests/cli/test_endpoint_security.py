"""The HTTP endpoint with TLS and tokens: readers of metrics, and renewed files."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from ottla.cli.failures import CommandFailed
from ottla.cli.nodes.endpoint import CONNECTIONS_MAX, MonitoringEndpoint, NodesHere
from ottla.cli.nodes.endpoint_security import EndpointSecurity
from ottla.cli.nodes.node import with_endpoint
from ottla.protocol.exposition import Family, Metric, MetricKind
from ottla.protocol.settings.config_keys import ConfigError, Scope, check_properties, is_sensitive
from tests.network.tls.certificates import Authority

ANSWER = Metric("answer", MetricKind.GAUGE, "To everything.")
TOKEN, OTHER = "0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"
AUTHORITY = Authority()


class Node:
    reason = ""

    def families(self) -> Iterable[Family]:
        return [Family(ANSWER, [((), 42)])]

    def unready(self) -> str:
        return self.reason

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


def run(scenario: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await scenario

    uvloop.run(bounded())


@asynccontextmanager
async def served(settings: dict[str, str], node: Node | None = None) -> AsyncIterator[MonitoringEndpoint]:
    security = EndpointSecurity(settings, "127.0.0.1")
    endpoint = MonitoringEndpoint("127.0.0.1", 0, NodesHere([node or Node()]), security)
    await endpoint.start()
    try:
        yield endpoint
    finally:
        await endpoint.stop()


async def ask(port: int, path: str, *headers: str, context: ssl.SSLContext | None = None) -> str:
    """Return the answer; empty if the connection ends without one."""
    lines = [f"GET {path} HTTP/1.1", *headers, "", ""]
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        writer.write("\r\n".join(lines).encode())
        answer = await reader.read()
        writer.close()
    except (OSError, ssl.SSLError):
        return ""
    return answer.decode("latin-1")


def token_file(folder: Path, *tokens: str) -> dict[str, str]:
    file = folder / "tokens"
    file.unlink(missing_ok=True)
    file.touch(mode=0o600)
    file.write_text("".join(f"{token}\n" for token in tokens))
    return {"metrics.bearer.token.file": str(file)}


def key_files(folder: Path, *names: str) -> dict[str, str]:
    issued = AUTHORITY.issue(*(names or ("127.0.0.1",)), organization_unit="nodes")
    issued.pem_file(folder / "own.pem")
    AUTHORITY.trust_file(folder / "ca.pem")
    return {
        "metrics.ssl.keystore.type": "PEM",
        "metrics.ssl.keystore.location": str(folder / "own.pem"),
        "ssl.keystore.location": "/nowhere: not of the endpoint",
    }


def client(folder: Path, own: Path | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    if own is not None:
        context.load_cert_chain(own)
    return context


def test_who_shows_no_token_reads_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = Node()
        async with served(token_file(tmp_path, TOKEN, OTHER), node) as endpoint:
            port = endpoint.port
            for headers in (
                (),
                ("Authorization: Bearer ",),
                (f"Authorization: Bearer {TOKEN}x",),
                (f"X: {TOKEN}",),
            ):
                refused = await ask(port, "/metrics", *headers)
                assert refused.startswith("HTTP/1.1 401 Unauthorized\r\n")
                assert "WWW-Authenticate: Bearer\r\n" in refused
                assert "answer 42" not in refused
            for shown in (f"Authorization: Bearer {TOKEN}", f"authorization:  bearer  {OTHER}"):
                assert "answer 42" in await ask(port, "/metrics", "Host: h", shown)
            node.reason = "broker 7 is fenced"
            assert "200 OK" in await ask(port, "/healthz")
            unready = await ask(port, "/readyz")
            assert unready.startswith("HTTP/1.1 503")
            assert "broker 7" not in unready
            assert "broker 7 is fenced" in await ask(port, "/readyz", f"Authorization: Bearer {TOKEN}")

    run(scenario())


def test_tokens_are_replaced_while_it_runs(tmp_path: Path) -> None:
    async def scenario() -> None:
        old, new = f"Authorization: Bearer {TOKEN}", f"Authorization: Bearer {OTHER}"
        async with served(token_file(tmp_path, TOKEN)) as endpoint:
            port = endpoint.port
            token_file(tmp_path, OTHER)
            assert "401" in await ask(port, "/metrics", old)
            assert "answer 42" in await ask(port, "/metrics", new)
            (tmp_path / "tokens").write_text("short")
            assert "answer 42" in await ask(port, "/metrics", new), (
                "those of before, while the file is useless"
            )
            (tmp_path / "tokens").unlink()
            assert "answer 42" in await ask(port, "/metrics", new)

    run(scenario())


def test_it_speaks_tls_and_nothing_else(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served(key_files(tmp_path)) as endpoint:
            assert "answer 42" in await ask(endpoint.port, "/metrics", context=client(tmp_path))
            assert "answer 42" not in await ask(endpoint.port, "/metrics")

    run(scenario())


def test_connections_that_never_begin_tls_are_bounded(tmp_path: Path) -> None:
    """Each takes a descriptor of the node, which then has fewer for its clients and its logs."""

    async def scenario() -> None:
        async with served(key_files(tmp_path)) as endpoint:
            silent = [
                await asyncio.open_connection("127.0.0.1", endpoint.port) for _ in range(CONNECTIONS_MAX + 20)
            ]
            # Those that came first make room, long before their time is over.
            await asyncio.gather(*(reader.read() for reader, _ in silent[:20]))
            assert "answer 42" in await ask(endpoint.port, "/metrics", context=client(tmp_path))
            await asyncio.gather(*(reader.read() for reader, _ in silent))  # and all the others, in the end
            for _, writer in silent:
                writer.close()

    run(scenario())


def test_clients_show_certificates_where_they_have_to(tmp_path: Path) -> None:
    settings = key_files(tmp_path) | {
        "metrics.ssl.client.auth": "required",
        "metrics.ssl.truststore.location": str(tmp_path / "ca.pem"),
    }
    own = AUTHORITY.issue("prometheus").pem_file(tmp_path / "client.pem")
    stranger = Authority().issue("prometheus").pem_file(tmp_path / "stranger.pem")

    async def scenario() -> None:
        async with served(settings) as endpoint:
            assert "answer 42" in await ask(endpoint.port, "/metrics", context=client(tmp_path, own))
            for other in (None, stranger):
                refused = await ask(endpoint.port, "/metrics", context=client(tmp_path, other))
                assert "answer 42" not in refused

    run(scenario())


def test_a_renewed_certificate_is_used_and_a_bad_one_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def shown(port: int) -> int:
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client(tmp_path))
        serial = writer.get_extra_info("peercert")["serialNumber"]
        writer.close()
        return int(serial, 16)

    async def scenario() -> None:
        async with served(key_files(tmp_path)) as endpoint:
            port = endpoint.port
            before = await shown(port)
            (tmp_path / "own.pem").write_text("nothing of the kind")
            endpoint.look_at_keys()
            while "goes on with its old keys" not in caplog.text:
                await asyncio.sleep(0.05)
            assert await shown(port) == before
            key_files(tmp_path)
            endpoint.look_at_keys()
            while await shown(port) == before:
                await asyncio.sleep(0.05)
            assert endpoint.port == port
            assert "answer 42" in await ask(port, "/metrics", context=client(tmp_path))

    with caplog.at_level(logging.INFO):
        run(scenario())


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"metrics.ssl.client.auth": "none"}, r"has no certificate: give metrics\.ssl\.keystore\.location$"),
        (
            {"metrics.ssl.keystore.location": "/none.pem"},
            r"metrics\.ssl\.keystore\.location: /none\.pem: cannot be read",
        ),
        ({"metrics.bearer.token.file": "/none"}, r"metrics\.bearer\.token\.file: cannot read /none"),
    ],
)
def test_what_cannot_be_used_ends_the_start(settings: dict[str, str], problem: str) -> None:
    with pytest.raises(CommandFailed, match=problem):
        with_endpoint({"metrics.listener": "127.0.0.1:0"} | settings, [Node()])


def test_a_token_that_can_be_guessed_ends_the_start(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match=r"holds 4 bytes, at least 16 are needed"):
        with_endpoint({"metrics.listener": "127.0.0.1:0"} | token_file(tmp_path, "abcd"), [Node()])


@pytest.mark.parametrize(
    ("listener", "secured", "remark"),
    [
        ("127.0.0.1:0", (), ""),
        ("localhost:0", (), ""),
        ("[::1]:0", (), ""),
        ("0.0.0.0:0", (), "serves metrics to every client that reaches 0.0.0.0"),
        ("10.0.0.1:0", ("token",), "anyone on the network can read the token"),
        ("10.0.0.1:0", ("tls",), "serves metrics to every client that reaches"),
        ("127.0.0.1:0", ("tls", "token"), ""),
    ],
)
def test_what_is_open_to_others_is_remarked(
    listener: str, secured: tuple[str, ...], remark: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"metrics.listener": listener}
    settings |= key_files(tmp_path, "127.0.0.1", "10.0.0.1") if "tls" in secured else {}
    settings |= token_file(tmp_path, TOKEN) if "token" in secured else {}
    with_endpoint(settings, [Node()])
    assert remark in caplog.text
    assert bool(caplog.text) == bool(remark)


def test_its_keys_are_settings_of_every_node() -> None:
    known = {"metrics.ssl.key.password": "x", "metrics.ssl.client.auth": "required"}
    for scope in (Scope.BROKER, Scope.QUORUM):
        assert check_properties(known, scope) == []
    assert is_sensitive("metrics.ssl.key.password")
    for name in ("metrics.ssl.keystore.pasword", "metrics.ssl.principal.mapping.rules", "metrics.keystore"):
        with pytest.raises(ConfigError, match="Unknown configuration"):
            check_properties({name: "x"}, Scope.BROKER)
    with pytest.raises(ConfigError, match="it must be one of none, requested, required"):
        check_properties({"metrics.ssl.client.auth": "perhaps"}, Scope.QUORUM)
