"""An authorization server for tests. It grants tokens for client credentials, and serves the keys that sign them."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, unquote

from joserfc import jws
from joserfc.jwk import ECKey, Key, OKPKey, RSAKey

ISSUER, AUDIENCE = "https://issuer.test/", "kafka"
CLIENTS = {"ann": "ann's secret", "bob": "bob's secret"}
ALL = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519", "HS256",
    "ES256K",
)  # fmt: skip


def claims_of(user: str = "ann", lasts_s: float = 300, **more: Any) -> dict[str, Any]:
    """Return the claims of a valid token; a value of None removes a claim."""
    now = time.time()
    claims = {
        "sub": user,
        "iss": ISSUER,
        "aud": AUDIENCE,
        "iat": now - 1,
        "exp": now + lasts_s,
        "scope": "kafka",
    }
    return {name: value for name, value in (claims | more).items() if value is not None}


def signed(claims: Mapping[str, Any] | bytes, key: Key, algorithm: str = "RS256", **header: Any) -> str:
    """Return a signed token; a value of None removes a header field."""
    named = {"alg": algorithm, "kid": key.kid, "typ": "JWT"} | header
    content = claims if isinstance(claims, bytes) else json.dumps(claims).encode()
    registry = jws.JWSRegistry(algorithms=ALL, strict_check_header=False)
    return jws.serialize_compact(
        {name: value for name, value in named.items() if value is not None}, content, key, registry=registry
    )


def unsigned(claims: Mapping[str, Any], **header: Any) -> str:
    """Return a token without a signature."""
    return ".".join(
        (*(encoded(json.dumps(each).encode()) for each in ({"alg": "none"} | header, claims)), "")
    )


def encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def new_key(kid: str | None, kind: str = "RSA") -> Key:
    parameters: Any = {"use": "sig"} | ({} if kid is None else {"kid": kid})
    if kind == "RSA":
        return RSAKey.generate_key(2048, parameters)
    if kind.startswith("Ed"):
        return OKPKey.generate_key(kind, parameters)  # type: ignore[arg-type]
    return ECKey.generate_key(kind, parameters)  # type: ignore[arg-type]


def key_set(*keys: Key) -> bytes:
    return json.dumps({"keys": [key.as_dict(private=False) for key in keys]}).encode()


class Issuer:
    """A server that answers GET /keys and POST /token, on an event loop in a separate thread."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.tls = tls
        self.keys = [new_key("first")]
        self.lasts_s = 300.0
        self.asked: list[str] = []
        """The paths of all requests."""
        self.given: list[str] = []
        """All tokens."""
        self.port = 0

    @property
    def url(self) -> str:
        return f"{'http' if self.tls is None else 'https'}://localhost:{self.port}"

    def token(self, user: str = "ann") -> str:
        self.given.append(signed(claims_of(user, self.lasts_s), self.keys[-1]))
        return self.given[-1]

    def rotate(self, kid: str) -> None:
        """Sign with a new key, and stop serving the old keys."""
        self.keys = [new_key(kid)]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            path = head.split(" ")[1]
            headers = {
                name.lower(): value
                for name, _, value in (line.partition(": ") for line in head.split("\r\n"))
            }
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            self.asked.append(path)
            status, answer = self.answer(path, headers, body.decode())
            head = (
                f"HTTP/1.1 {status} Told\r\nContent-Type: application/json\r\nContent-Length: {len(answer)}\r\n"
                "Connection: close\r\n\r\n"
            )
            writer.write(head.encode() + answer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def answer(self, path: str, headers: Mapping[str, str], body: str) -> tuple[int, bytes]:
        if path == "/keys":
            return 200, key_set(*self.keys)
        if path != "/token":
            return 404, b"{}"
        user = _client(headers, {name: values[0] for name, values in parse_qs(body).items()})
        if user is None:
            return 401, b'{"error": "invalid_client"}'
        token = {"access_token": self.token(user), "token_type": "Bearer", "expires_in": int(self.lasts_s)}
        return 200, json.dumps(token).encode()


def _client(headers: Mapping[str, str], form: Mapping[str, str]) -> str | None:
    """Return the client's name if its secret is right, else None."""
    kind, _, pair = headers.get("authorization", "").partition(" ")
    if kind == "Basic":
        user, _, secret = base64.b64decode(pair).decode().partition(":")
    else:
        user, secret = form.get("client_id", ""), form.get("client_secret", "")
    return unquote(user) if CLIENTS.get(unquote(user)) == unquote(secret) else None


@contextmanager
def running_issuer(tls: ssl.SSLContext | None = None, port: int = 0) -> Iterator[Issuer]:
    issuer = Issuer(tls)
    with in_thread(issuer.serve, tls, port) as bound:
        issuer.port = bound
        yield issuer


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any]


@contextmanager
def in_thread(serve: Serve, tls: ssl.SSLContext | None = None, port: int = 0) -> Iterator[int]:
    """Serve connections with `serve` in a thread, and return the port."""
    loop, ports, ended = asyncio.new_event_loop(), [], asyncio.Event()
    ready = threading.Event()

    async def run() -> None:
        async with await asyncio.start_server(serve, "127.0.0.1", port, ssl=tls) as server:
            ports.append(server.sockets[0].getsockname()[1])
            ready.set()
            await ended.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
    thread.start()
    try:
        assert ready.wait(10)
        yield ports[0]
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(10)
        loop.close()
