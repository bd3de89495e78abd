"""A minimal HTTP client that fetches one small document: a GET without redirections.

The environment may name a proxy (https_proxy, http_proxy, no_proxy).
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
import urllib.request
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

from .addresses import host_in_url, host_port

DOCUMENT_BYTES_MAX: Final = 1024 * 1024
TIMEOUT_S: Final = 10.0
_HEADER_LINES_MAX: Final = 200
_LINE_BYTES_MAX: Final = 16 * 1024
_PORTS = {"http": 80, "https": 443}


class DocumentUnavailable(Exception):
    """The document could not be fetched. The text gives the reason and holds no password; `status` is the HTTP status
    of the answer, if an answer arrived."""

    def __init__(self, reason: str, status: int | None = None) -> None:
        super().__init__(reason)
        self.status = status


class _Refused(ValueError):
    """An answer with a status other than 200."""

    def __init__(self, reason: str, status: int) -> None:
        super().__init__(reason)
        self.status = status


async def get_document(
    url: str, tls: ssl.SSLContext | None, *, authorization: str | None = None, timeout_s: float | None = None
) -> bytes:
    """Fetch the document of an http: or https: URL; `tls` is the context for https:. Raises DocumentUnavailable.

    `authorization` is sent as the header of that name. The time limit is `timeout_s`, TIMEOUT_S by default.
    """
    patience_s = TIMEOUT_S if timeout_s is None else timeout_s
    try:
        async with asyncio.timeout(patience_s):
            return await _get(urlsplit(url), tls, authorization)
    except _Refused as error:
        raise DocumentUnavailable(str(error), error.status) from None
    except TimeoutError:
        raise DocumentUnavailable(f"it took longer than {patience_s:.0f} s") from None
    except ssl.SSLCertVerificationError as error:
        raise DocumentUnavailable(f"its certificate is not believed: {error.verify_message}") from None
    except (OSError, EOFError, ValueError) as error:
        raise DocumentUnavailable(str(error) or type(error).__name__) from None


async def _get(url: SplitResult, tls: ssl.SSLContext | None, authorization: str | None) -> bytes:
    host, port = url.hostname or "", url.port or _PORTS[url.scheme]
    target = (url.path or "/") + (f"?{url.query}" if url.query else "")
    context = tls if url.scheme == "https" else None
    proxy = _proxy_of(url)
    if proxy is None:
        reader, writer = await _open(host, port, context, host)
    else:
        reader, writer = await _open(proxy.hostname or "", proxy.port or _PORTS["http"], None, "")
    lines = [f"Host: {_authority(host, url.port)}", "Accept: application/json", "Connection: close"]
    lines += [] if authorization is None else [f"Authorization: {authorization}"]
    try:
        if proxy is not None and context is not None:
            await _tunnel(reader, writer, proxy, _authority(host, port))
            await writer.start_tls(context, server_hostname=host)
        elif proxy is not None:
            target = f"http://{_authority(host, url.port)}{target}"
            lines += _authorization(proxy)
        writer.write("\r\n".join((f"GET {target} HTTP/1.1", *lines, "", "")).encode("ascii"))
        return await _body(reader)
    finally:
        writer.close()


async def _open(
    host: str, port: int, tls: ssl.SSLContext | None, name: str
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if tls is None:
        return await asyncio.open_connection(host, port, limit=_LINE_BYTES_MAX)
    return await asyncio.open_connection(host, port, ssl=tls, server_hostname=name, limit=_LINE_BYTES_MAX)


def _proxy_of(url: SplitResult) -> SplitResult | None:
    given = urllib.request.getproxies().get(url.scheme)
    if not given or urllib.request.proxy_bypass(url.netloc.rpartition("@")[2]):
        return None
    proxy = urlsplit(given if "://" in given else f"http://{given}")
    if proxy.scheme != "http" or not proxy.hostname:
        raise ValueError(f"the proxy that {url.scheme}_proxy names must be http://HOST:PORT")
    return proxy


def _authority(host: str, port: int | None) -> str:
    return host_in_url(host) if port is None else host_port(host, port)


def _authorization(proxy: SplitResult) -> list[str]:
    if proxy.username is None:
        return []
    pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return [f"Proxy-Authorization: Basic {base64.b64encode(pair.encode()).decode()}"]


async def _tunnel(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, proxy: SplitResult, authority: str
) -> None:
    lines = (f"CONNECT {authority} HTTP/1.1", f"Host: {authority}", *_authorization(proxy), "", "")
    writer.write("\r\n".join(lines).encode("ascii"))
    status, _ = await _head(reader)
    if status != 200:
        raise ValueError(f"the proxy {proxy.hostname} answers with status {status}")


async def _body(reader: asyncio.StreamReader) -> bytes:
    status, headers = await _head(reader)
    if status != 200:
        where = f", Location: {headers['location'][:200]}" if "location" in headers else ""
        raise _Refused(f"it answers with status {status}{where}", status)
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise ValueError("it is compressed, which nobody asked for")
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return await _chunks(reader)
    if "transfer-encoding" in headers:
        raise ValueError(f"its transfer encoding is {headers['transfer-encoding'][:50]!r}")
    length = headers.get("content-length")
    if length is None:
        return await _until_end(reader)
    _check_size(_number(length, 10))
    return await reader.readexactly(int(length))


async def _head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    """Read the status line and the headers of an HTTP answer. Return the status code and the headers by lower-case
    name."""
    version, _, rest = (await _line(reader)).partition(" ")
    status = rest[:3]
    if not version.startswith("HTTP/1.") or not (status.isascii() and status.isdecimal()):
        raise ValueError("it does not answer in HTTP")
    headers: dict[str, str] = {}
    for _ in range(_HEADER_LINES_MAX):
        line = await _line(reader)
        if not line:
            return int(status), headers
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    raise ValueError(f"it answers with more than {_HEADER_LINES_MAX} headers")


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    content = bytearray()
    while size := _number((await _line(reader)).partition(";")[0].strip(), 16):
        _check_size(len(content) + size)
        content += await reader.readexactly(size)
        if await reader.readexactly(2) != b"\r\n":
            raise ValueError("a chunk of it is longer than it says")
    return bytes(content)


async def _until_end(reader: asyncio.StreamReader) -> bytes:
    content = bytearray()
    while piece := await reader.read(64 * 1024):
        content += piece
        _check_size(len(content))
    return bytes(content)


async def _line(reader: asyncio.StreamReader) -> str:
    line = await reader.readline()  # raises ValueError beyond the limit
    if not line.endswith(b"\n"):
        raise EOFError("it ends within its headers")
    return line.rstrip(b"\r\n").decode("latin-1")


def _number(text: str, base: int) -> int:
    with contextlib.suppress(ValueError):
        if text.isascii() and text.isalnum() and len(text) <= 16:
            return int(text, base)
    raise ValueError(f"it gives {text[:20]!r} as a length")


def _check_size(size: int) -> None:
    if size > DOCUMENT_BYTES_MAX:
        raise ValueError(f"it is larger than {DOCUMENT_BYTES_MAX} bytes")
