"""An HTTP download: servers' answers, with TLS, through proxies, and exceeded limits."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ottla.dataplane.security.oauth.provider_keys import reader_of
from ottla.dataplane.security.oauth.settings import KeySource
from ottla.network import http_get
from ottla.network.http_get import DocumentUnavailable, get_document
from ottla.network.tls.settings import StoreSource
from tests.certificates import Authority
from tests.oauth_issuer import in_thread, key_set, running_issuer


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@contextmanager
def answering(answer: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """Run a server with a fixed answer; yield its URL, and its requests."""
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)
        writer.close()

    with in_thread(serve) as port:
        yield f"http://127.0.0.1:{port}/keys?of=all", asked


def head(*lines: str, status: str = "200 OK") -> bytes:
    return "\r\n".join((f"HTTP/1.1 {status}", *lines, "", "")).encode()


@pytest.mark.parametrize(
    "answer",
    [
        head("Content-Length: 4") + b"keys and more",
        head("content-length:4") + b"keys",
        head() + b"keys",
        head("Transfer-Encoding: Chunked") + b"1\r\nk\r\n3;x=y\r\neys\r\n0\r\n\r\n",
        head("X: y", "Content-Encoding: identity").replace(b"\r\n", b"\n") + b"keys",
    ],
)
async def test_answers_that_are_read(answer: bytes) -> None:
    with answering(answer) as (url, asked):
        assert await get_document(url, None) == b"keys"
        port = url.split(":")[2].split("/")[0]
        assert asked[0].decode().split("\r\n")[:-2] == [
            "GET /keys?of=all HTTP/1.1",
            f"Host: 127.0.0.1:{port}",
            "Accept: application/json",
            "Connection: close",
        ]


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (b"", "ends within its headers"),
        (b"SSH-2.0-x\r\n", "does not answer in HTTP"),
        (b"HTTP/1.1 2x0 OK\r\n\r\n", "does not answer in HTTP"),
        (b"HTTP/1.1 200", "ends within its headers"),
        (b"x" * 100_000, "limit|longer"),
        (head(*["X: y"] * 300), "more than 200 headers"),
        (
            head("Location: https://elsewhere/", status="302 Found"),
            "status 302, Location: https://elsewhere/",
        ),
        (head(status="404 Not Found"), "status 404"),
        (head("Content-Length: 1048577"), "larger than 1048576"),
        (head("Content-Length: 9999999999999999999"), "as a length"),
        (head("Content-Length: -4"), "'-4' as a length"),
        (head("Content-Length: 5") + b"keys", "4 bytes read on a total of 5"),
        (head() + b"x" * 1_100_000, "larger than 1048576"),
        (
            head("Transfer-Encoding: chunked") + b"fffff\r\n" + b"x" * 0xFFFFF + b"\r\nfffff\r\n",
            "larger than",
        ),
        (head("Transfer-Encoding: chunked") + b"1\r\nkeys\r\n0\r\n\r\n", "longer than it says"),
        (head("Transfer-Encoding: chunked") + b"-1\r\n", "'-1' as a length"),
        (head("Transfer-Encoding: gzip, chunked"), "'gzip, chunked'"),
        (head("Content-Encoding: gzip"), "compressed"),
    ],
)
async def test_answers_that_are_not(answer: bytes, complaint: str) -> None:
    with answering(answer) as (url, _), pytest.raises(DocumentUnavailable, match=complaint):
        await get_document(url, None)


async def test_nobody_there() -> None:
    with answering(b"") as (url, _):
        pass
    with pytest.raises(DocumentUnavailable, match=r"[Cc]onnect"):
        await get_document(url, None)


async def test_a_server_that_dawdles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_get, "TIMEOUT_S", 0.1)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    with in_thread(serve) as port, pytest.raises(DocumentUnavailable, match="longer than"):
        await get_document(f"http://127.0.0.1:{port}/", None)


def server_context(authority: Authority, *names: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.issue("issuer", *names).both)
    return context


async def test_certificates_are_checked(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    trusted = StoreSource("ssl.truststore.location", authority.file)
    with running_issuer(server_context(authority, "localhost")) as issuer:
        url = f"{issuer.url}/keys"
        assert await reader_of(KeySource(url, trusted))() == key_set(*issuer.keys)
        with pytest.raises(DocumentUnavailable, match="its certificate is not believed: "):
            await reader_of(KeySource(url))()
        with pytest.raises(DocumentUnavailable, match="certificate is not believed: IP address mismatch"):
            await reader_of(KeySource(url.replace("localhost", "127.0.0.1"), trusted))()
        gone = StoreSource("ssl.truststore.location", tmp_path / "gone.pem")
        with pytest.raises(DocumentUnavailable, match=r"gone\.pem: cannot be read"):
            await reader_of(KeySource(url, gone))()
    with answering(head() + b"keys") as (plain, _), pytest.raises(DocumentUnavailable):
        await reader_of(KeySource(plain.replace("http:", "https:"), trusted))()


@contextmanager
def proxy(status: str = "200 Connection established") -> Iterator[tuple[int, list[str]]]:
    """Run a proxy that takes CONNECT to ports of this machine, and whole URLs."""
    asked: list[str] = []

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(65536):
            writer.write(piece)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readuntil(b"\r\n\r\n")).decode())
        if not asked[-1].startswith("CONNECT"):
            writer.write(head() + b"by proxy")
            writer.close()
            return
        writer.write(head(status=status))
        if not status.startswith("200"):
            writer.close()
            return
        port = int(asked[-1].split(" ")[1].rpartition(":")[2])
        others = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(pipe(reader, others[1]), pipe(others[0], writer), return_exceptions=True)

    with in_thread(serve) as port:
        yield port, asked


async def test_proxies_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path)
    trusted = StoreSource("ssl.truststore.location", authority.file)
    with running_issuer(server_context(authority, "localhost")) as issuer, proxy() as (port, asked):
        read = reader_of(KeySource(f"{issuer.url}/keys", trusted))
        monkeypatch.setenv("https_proxy", f"http://me:p%40ss@127.0.0.1:{port}")
        assert await read() == key_set(*issuer.keys)
        assert asked[0].startswith(f"CONNECT localhost:{issuer.port} HTTP/1.1\r\n")
        assert base64.b64encode(b"me:p@ss").decode() in asked[0]
        monkeypatch.setenv("no_proxy", "localhost")
        assert await read() == key_set(*issuer.keys)
        assert len(asked) == 1
        monkeypatch.delenv("no_proxy")
        monkeypatch.setenv("https_proxy", f"socks5://127.0.0.1:{port}")
        with pytest.raises(DocumentUnavailable, match="https_proxy names must be http://HOST:PORT"):
            await read()
        monkeypatch.setenv("http_proxy", f"127.0.0.1:{port}")
        assert await get_document("http://issuer.test/keys", None) == b"by proxy"
        assert asked[1].startswith("GET http://issuer.test/keys HTTP/1.1\r\nHost: issuer.test\r\n")
    with proxy("407 Authentication required") as (port, _):
        monkeypatch.setenv("https_proxy", f"http://me:geheim@127.0.0.1:{port}")
        with pytest.raises(
            DocumentUnavailable, match=r"proxy 127\.0\.0\.1 answers with status 407"
        ) as failed:
            await get_document("https://issuer.test/keys", ssl.create_default_context())
        assert "geheim" not in str(failed.value)


async def test_an_ipv6_address_stands_in_brackets_in_the_requests_to_a_proxy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with proxy() as (port, asked):
        monkeypatch.setenv("http_proxy", f"127.0.0.1:{port}")
        assert await get_document("http://[2001:db8::7]:81/keys", None) == b"by proxy"
    assert asked[0].startswith("GET http://[2001:db8::7]:81/keys HTTP/1.1\r\nHost: [2001:db8::7]:81\r\n")
