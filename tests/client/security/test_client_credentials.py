"""The grant of client credentials, tested with an authorization server of a few lines."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ottla.client.security.called_for import CredentialsUnavailable
from ottla.client.security.oauth import ClientCredentials
from tests.certificates import Authority


class AuthorizationServer(ThreadingHTTPServer):
    """A server that answers with `status` and `answer`, and keeps the requests."""

    def __init__(self, authority: Authority) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        issued = authority.issue("idp", "localhost", "127.0.0.1")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(issued.both)
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.status, self.answer = 200, b""
        self.asked: list[tuple[str, str, str]] = []


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        server = self.server
        assert isinstance(server, AuthorizationServer)
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        server.asked.append((self.path, self.headers["Authorization"], body))
        self.send_response(server.status)
        self.send_header("Content-Length", str(len(server.answer)))
        self.end_headers()
        self.wfile.write(server.answer)

    def log_message(self, format: str, *args: Any) -> None:
        """Do nothing."""


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def server(authority: Authority) -> Iterator[AuthorizationServer]:
    with AuthorizationServer(authority) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def credentials(server: AuthorizationServer, authority: Authority | None, **more: Any) -> ClientCredentials:
    given: dict[str, Any] = {
        "url": f"https://localhost:{server.server_address[1]}/oauth/token?realm=x",
        "client_id": "my client",
        "client_secret": "hun:ter2",
        "scope": "kafka read",
        "cafile": None if authority is None else str(authority.file),
    }
    return ClientCredentials(**given | more)


def test_a_token_is_asked_for(server: AuthorizationServer, authority: Authority) -> None:
    server.answer = json.dumps({"access_token": "abc", "expires_in": 300}).encode()
    token = credentials(server, authority).token()
    assert isinstance(token, tuple)
    assert token[0] == "abc"
    assert abs(token[1] - time.time() - 300) < 60
    (asked,) = server.asked
    assert asked == (
        "/oauth/token?realm=x",
        "Basic " + base64.b64encode(b"my%20client:hun%3Ater2").decode(),
        "grant_type=client_credentials&scope=kafka+read",
    )
    server.answer = json.dumps({"access_token": "abc"}).encode()
    assert credentials(server, authority, scope=None).token() == "abc"
    assert server.asked[1][2] == "grant_type=client_credentials"


@pytest.mark.parametrize(
    ("status", "answer", "message", "is_final"),
    [
        (401, b'{"error": "invalid_client"}', r"status 401, invalid_client", True),
        (400, b"<html>", r"gave no token \(status 400\)", True),
        (503, b"", r"status 503", False),
        (200, b"[]", r"status 200", False),
        (200, b"x" * (1024 * 1024 + 1), "answers more than 1048576 bytes", False),
    ],
)
def test_a_server_that_gives_none(
    server: AuthorizationServer,
    authority: Authority,
    status: int,
    answer: bytes,
    message: str,
    is_final: bool,
) -> None:
    server.status, server.answer = status, answer
    with pytest.raises(CredentialsUnavailable, match=message) as failed:
        credentials(server, authority).token()
    assert failed.value.is_final is is_final
    assert "ter2" not in str(failed.value)


def test_a_server_that_is_not_believed(server: AuthorizationServer) -> None:
    with pytest.raises(CredentialsUnavailable, match="certificate verify failed"):
        credentials(server, None).token()
    assert not server.asked


def test_a_server_that_is_not_there(authority: Authority, server: AuthorizationServer) -> None:
    with pytest.raises(CredentialsUnavailable, match=r"cannot be asked for a token: .*refused"):
        credentials(server, authority, url="https://localhost:1/x").token()
