"""Connections over TLS and with logins, tested with small listeners."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from ottla.client.connections.authenticated import AuthenticatedConnection
from ottla.client.connections.connection import Connection
from ottla.client.connections.metadata import BrokerAddress
from ottla.client.connections.opening import connect
from ottla.client.failures import AuthenticationFailed, ConnectionLost, TlsFailed
from ottla.client.security.called_for import CredentialsUnavailable
from ottla.client.security.logins import LoginAttempt, PlainClientLogin
from ottla.client.security.options import SecurityOptions
from ottla.client.security.security import Security, security_of
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.headers import decode_request_header, response_header
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from ottla.protocol.wire.codec import encode
from ottla.protocol.wire.schema import Message
from tests.certificates import Authority, Issued

VERSIONS = ApiVersionsResponse(
    api_keys=[
        ApiVersion(api_key=key, min_version=0, max_version=version)
        for key, version in ((18, 3), (3, 9), (17, 1), (36, 2))
    ]
)
FRAME_BYTES_MAX = 1 << 20
LOGGER = "ottla.client.security"


class Broker:
    """A broker that answers a client's first requests; `asked` keeps the requests."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.lifetimes_ms: list[int] = []
        self.refusal: tuple[int, str] | None = None
        self.holds = asyncio.Event()
        self.holds.set()
        """Metadata requests are not answered while this is unset."""
        self.names: list[str | None] = []
        """Server names that clients sent by SNI."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                size: int = struct.unpack(">i", await reader.readexactly(4))[0]
                if size > FRAME_BYTES_MAX:
                    break
                frame = await reader.readexactly(size)
                header, _ = decode_request_header(frame)
                version = min(header.api_version, 3) if header.api_key == 18 else header.api_version
                head = response_header(header.api_key, version, header.correlation_id)
                body = encode(await self._answer(header.api_key, header.api_version), version)
                writer.write(struct.pack(">i", len(head) + len(body)) + head + body)
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.close()

    async def _answer(self, api_key: int, version: int) -> Message:
        if api_key == ApiVersionsRequest.api_key:
            self.asked.append("versions")
            return VERSIONS
        if api_key == SaslHandshakeRequest.api_key:
            self.asked.append("handshake")
            return SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN"])
        if api_key == SaslAuthenticateRequest.api_key:
            self.asked.append("login")
            code, text = self.refusal or (0, "")
            lifetime = self.lifetimes_ms.pop(0) if self.lifetimes_ms else 0
            return SaslAuthenticateResponse(
                error_code=code, error_message=text, auth_bytes=b"", session_lifetime_ms=lifetime
            )
        assert api_key == MetadataRequest.api_key
        self.asked.append("metadata")
        await self.holds.wait()
        return MetadataResponse(cluster_id="c")


@asynccontextmanager
async def listening(
    broker: Broker, certificate: Issued | None = None, host: str = "127.0.0.1"
) -> AsyncIterator[BrokerAddress]:
    context = None
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate.both)
        context.sni_callback = lambda _, name, __: broker.names.append(name)
    server = await asyncio.start_server(broker.serve, "127.0.0.1", 0, ssl=context)
    async with server:
        yield BrokerAddress(1, host, server.sockets[0].getsockname()[1])


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def tls(authority: Authority | None, **more: Any) -> Security:
    given = {} if authority is None else {"ssl_cafile": authority.file}
    security = security_of(SecurityOptions(security_protocol="SSL", **{**given, **more}))
    assert security is not None
    return security


def plain_login() -> Security:
    return Security(None, PlainClientLogin("ann", "hunter2"))


async def opened(address: BrokerAddress, security: Security | None) -> Connection:
    return await connect(address, security=security, timeout_ms=20_000)


# ------------------------------------------------------------ TLS


async def test_names_are_checked_and_sent(authority: Authority) -> None:
    broker = Broker()
    issued = authority.issue("a", "localhost", "127.0.0.1")
    for host in ("localhost", "127.0.0.1"):
        async with listening(broker, issued, host) as address:
            connection = await opened(address, tls(authority))
            answer = await connection.request(MetadataRequest(topics=[]))
            assert answer.cluster_id == "c"
            connection.close()
    assert broker.names == ["localhost", None], "an address is not sent as a name"


async def test_the_name_is_sent_also_where_it_is_not_checked(authority: Authority) -> None:
    broker = Broker()
    async with listening(broker, authority.issue("a", "other.test"), "localhost") as address:
        (await opened(address, tls(authority, ssl_check_hostname=False))).close()
    assert broker.names == ["localhost"]


@pytest.mark.parametrize(
    ("certificate", "message"),
    [
        (
            {"identities": ["127.0.0.1"], "days": -1, "begins_days_ago": 3},
            r"the certificate of 127.0.0.1 expired on 20..-.*\(OpenSSL: certificate has expired; subject: .*issuer: ",
        ),
        (
            {"identities": ["127.0.0.1"], "begins_days_ago": -2},
            "the certificate of 127.0.0.1 is not valid before on 20",
        ),
        (
            {"identities": ["b.test", "10.1.2.3"]},
            "the certificate of 127.0.0.1 is for b.test, 10.1.2.3, and not for 127.0.0.1",
        ),
    ],
)
async def test_what_is_wrong_with_a_certificate_is_told(
    authority: Authority, certificate: dict[str, Any], message: str
) -> None:
    broker = Broker()
    issued = authority.issue("a", *certificate.pop("identities"), **certificate)
    async with listening(broker, issued) as address:
        with pytest.raises(TlsFailed, match=message):
            await opened(address, tls(authority))
    assert not broker.asked


async def test_who_has_signed_is_told_when_nobody_trusts_it(authority: Authority, tmp_path: Path) -> None:
    another = Authority(tmp_path / "another")
    async with listening(Broker(), authority.issue("a", "127.0.0.1")) as address:
        with pytest.raises(
            TlsFailed, match=r"not signed by anyone .*ssl_cafile .*another.*issuer: "
        ) as failed:
            await opened(address, tls(another))
    assert failed.value.code is ErrorCode.TLS_FAILED
    assert not failed.value.code.retriable


async def test_a_plain_listener_is_named(authority: Authority) -> None:
    async with listening(Broker()) as address:
        with pytest.raises(ConnectionLost, match="maybe this broker does not speak TLS on that port"):
            await opened(address, tls(authority))


@asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[BrokerAddress]:
    """Run a server that answers any first request with these bytes, and closes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield BrokerAddress(1, "127.0.0.1", server.sockets[0].getsockname()[1])


async def test_a_listener_that_answers_something_else_is_named(authority: Authority) -> None:
    async with answering(b"HTTP/1.1 400 Bad Request\r\n\r\n") as address:
        with pytest.raises(TlsFailed, match="this broker does not speak TLS on that port"):
            await opened(address, tls(authority))


async def test_a_tls_listener_is_named() -> None:
    async with answering(bytes.fromhex("15 03 03 00 02 02 28")) as address:
        with pytest.raises(TlsFailed, match="the broker expects TLS: security_protocol is SSL or SASL_SSL"):
            await opened(address, None)


async def test_a_listener_that_only_closes_may_want_something_else() -> None:
    async with answering(b"") as address:
        with pytest.raises(ConnectionLost, match="security_protocol may not be that of the listener"):
            await opened(address, None)


async def test_new_files_count_for_new_connections(authority: Authority, tmp_path: Path) -> None:
    second = Authority(tmp_path / "second")
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(authority.file.read_bytes())
    security = tls(None, ssl_cafile=trusted)
    async with (
        listening(Broker(), authority.issue("a", "127.0.0.1")) as old,
        listening(Broker(), second.issue("a", "127.0.0.1")) as new,
    ):
        first = await opened(old, security)
        with pytest.raises(TlsFailed):
            await opened(new, security)
        replace(trusted, second.file.read_bytes())
        (await opened(new, security)).close()
        assert (await first.request(MetadataRequest(topics=[]))).cluster_id == "c", (
            "established connections stay"
        )
        first.close()


async def test_new_files_that_are_broken_do_not_count(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(authority.file.read_bytes())
    security = tls(None, ssl_cafile=trusted)
    async with listening(Broker(), authority.issue("a", "127.0.0.1")) as address:
        replace(trusted, b"half a certif")
        with caplog.at_level(logging.WARNING, LOGGER):
            for _ in range(2):
                (await opened(address, security)).close()
    assert [
        record.getMessage()
        for record in caplog.records
        if "cannot be used, so the old ones are" in record.getMessage()
    ]
    assert len(caplog.records) == 1, "told once"


def replace(path: Path, content: bytes) -> None:
    """Replace a file atomically, as programs that renew certificates should."""
    new = path.with_suffix(".new")
    new.write_bytes(content)
    os.replace(new, path)


# ------------------------------------------------------------ logins


async def test_the_order_is_versions_handshake_login() -> None:
    broker = Broker()
    async with listening(broker) as address:
        connection = await opened(address, plain_login())
        await connection.request(MetadataRequest(topics=[]))
        connection.close()
    assert broker.asked == ["versions", "handshake", "login", "metadata"]


async def test_a_refused_login_is_told_without_the_password() -> None:
    broker = Broker()
    broker.refusal = (ErrorCode.SASL_AUTHENTICATION_FAILED, "no such user")
    async with listening(broker) as address:
        with pytest.raises(
            AuthenticationFailed, match="login as 'ann' by PLAIN failed: no such user"
        ) as failed:
            await opened(address, plain_login())
    assert "hunter2" not in str(failed.value)


@pytest.fixture
def quickly_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.client.connections.authenticated.RENEWED_S_MIN", 0.0)


async def renewal_begins(connection: Connection) -> None:
    assert isinstance(connection, AuthenticatedConnection)
    async with asyncio.timeout(20):
        while connection._held is None:
            await asyncio.sleep(0.001)


@pytest.mark.usefixtures("quickly_renewed")
async def test_requests_are_held_back_while_a_login_is_renewed() -> None:
    broker = Broker()
    broker.lifetimes_ms = [50]
    broker.holds.clear()
    async with listening(broker) as address:
        connection = await opened(address, plain_login())
        before = connection.send(MetadataRequest(topics=[]))
        await renewal_begins(connection)
        during = [connection.send(MetadataRequest(topics=[])) for _ in range(3)]
        given_up = connection.send(MetadataRequest(topics=[]))
        given_up.cancel()
        assert connection.in_flight == 5
        assert not before.done()
        broker.holds.set()
        await asyncio.gather(before, *during)
        connection.close()
    assert broker.asked == [
        *("versions", "handshake", "login", "metadata"),
        *("handshake", "login", "metadata", "metadata", "metadata"),
    ]


@pytest.mark.usefixtures("quickly_renewed")
async def test_a_login_that_is_not_renewed_ends_the_connection() -> None:
    broker = Broker()
    broker.lifetimes_ms = [50]
    broker.holds.clear()
    lost: list[Connection] = []
    async with listening(broker) as address:
        connection = await opened(address, plain_login())
        connection.on_lost = lost.append
        before = connection.send(MetadataRequest(topics=[]))
        await renewal_begins(connection)
        held = connection.send(MetadataRequest(topics=[]))
        broker.refusal = (ErrorCode.SASL_AUTHENTICATION_FAILED, "no more")
        broker.holds.set()
        await before
        with pytest.raises(AuthenticationFailed, match="no more"):
            await held
        with pytest.raises(AuthenticationFailed, match="no more"):
            connection.send(MetadataRequest(topics=[]))
    assert lost == [connection]


class SeldomLogin(PlainClientLogin):
    """A login whose password is unavailable while `is_away`."""

    is_away = False
    prepared = 0

    async def prepare(self, host: str) -> LoginAttempt:
        self.prepared += 1
        if self.is_away:
            raise CredentialsUnavailable("nobody gives a password")
        return await super().prepare(host)


@pytest.mark.usefixtures("quickly_renewed")
async def test_a_session_lasts_to_its_end_while_no_credentials_can_be_had() -> None:
    broker, login = Broker(), SeldomLogin("ann", "hunter2")
    broker.lifetimes_ms = [1_500]
    async with listening(broker) as address:
        loop = asyncio.get_running_loop()
        connection = await opened(address, Security(None, login))
        began_s = loop.time()
        login.is_away = True
        async with asyncio.timeout(20):
            while connection.lost is None:
                await asyncio.sleep(0.01)
                with suppress(ConnectionLost):  # The session may end while the request is being sent.
                    await connection.request(MetadataRequest(topics=[]))
        assert loop.time() - began_s >= 1.45, "not before the session ended"
        assert isinstance(connection.lost, ConnectionLost)
        assert "nobody gives a password" in str(connection.lost)
    assert 3 <= login.prepared < 10
    assert broker.asked.count("handshake") == 1, "the broker hears of a renewal that can be carried out"


@pytest.mark.usefixtures("quickly_renewed")
async def test_a_session_is_renewed_as_soon_as_there_are_credentials_again() -> None:
    broker, login = Broker(), SeldomLogin("ann", "hunter2")
    broker.lifetimes_ms = [1_500]
    async with listening(broker) as address:
        connection = await opened(address, Security(None, login))
        login.is_away = True
        async with asyncio.timeout(20):
            while login.prepared < 2:
                await asyncio.sleep(0.01)
            login.is_away = False
            while broker.asked.count("login") < 2:
                await connection.request(MetadataRequest(topics=[]))
                await asyncio.sleep(0.01)
        await connection.request(MetadataRequest(topics=[]))
        assert connection.lost is None
        connection.close()


@pytest.mark.usefixtures("quickly_renewed")
async def test_a_connection_that_is_closed_renews_nothing() -> None:
    broker = Broker()
    broker.lifetimes_ms = [50]
    broker.holds.clear()
    async with listening(broker) as address:
        connection = await opened(address, plain_login())
        before = connection.send(MetadataRequest(topics=[]))
        await renewal_begins(connection)
        held = connection.send(MetadataRequest(topics=[]))
        connection.close()
        for future in (before, held):
            with pytest.raises(ConnectionLost, match="was closed"):
                await future
        broker.holds.set()
    assert broker.asked == ["versions", "handshake", "login", "metadata"]


@pytest.mark.parametrize(
    ("security", "peer", "warns"),
    [
        (plain_login, "10.0.0.1", True),
        (plain_login, "fe80::1%eth0", True),
        (plain_login, "127.0.0.2", False),
        (plain_login, "::1", False),
        (plain_login, "", False),
    ],
)
def test_a_password_that_others_can_read_is_warned_of(
    security: Callable[[], Security], peer: str, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    options = security()
    with caplog.at_level(logging.WARNING, LOGGER):
        options.warn_of_readable_password(peer)
        options.warn_of_readable_password(peer)
    assert [record.getMessage() for record in caplog.records] == (
        [
            f"the password of 'ann' goes to {peer} unencrypted (SASL_PLAINTEXT, PLAIN): anyone on the way can read it"
        ]
        if warns
        else []
    )
