"""A server with the part of S3's protocol that a store uses, in memory, with failures that tests choose."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

LISTED_AT_A_TIME = 3


class S3Server(ThreadingHTTPServer):
    """A server of buckets at `address`.

    `failures` are taken one by one, one for each request: a status such as 503, `lost` for a request that is carried
    out and not answered, or an empty text for none.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.lock = Lock()
        self.objects: dict[str, bytes] = {}
        self.failures: list[str] = []
        self.asked: list[str] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: S3Server

    def do_PUT(self) -> None:
        body = self._body()
        with self._begun() as path:
            if path in self.server.objects and self.headers.get("If-None-Match") == "*":
                return self._answer(412, _error("PreconditionFailed"))
            self.server.objects[path] = body
            return self._answer(200)

    def do_GET(self) -> None:
        with self._begun() as path:
            query = parse_qs(urlsplit(self.path).query)
            if "list-type" in query:
                return self._answer(200, self._listing(path, query))
            data = self.server.objects.get(path)
            if data is None:
                return self._answer(404, _error("NoSuchKey"))
            if asked := re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", "")):
                start, last = int(asked[1]), min(int(asked[2]), len(data) - 1)
                if start >= len(data):
                    return self._answer(416, _error("InvalidRange"))
                return self._answer(206, data[start : last + 1], f"bytes {start}-{last}/{len(data)}")
            return self._answer(200, data)

    do_HEAD = do_GET

    def do_DELETE(self) -> None:
        with self._begun() as path:
            self.server.objects.pop(path, None)
            self._answer(204)

    def do_POST(self) -> None:
        body = self._body().decode()
        with self._begun() as bucket:
            keys = re.findall(r"<Key>(.*?)</Key>", body)
            for key in keys:
                self.server.objects.pop(f"{bucket.rstrip('/')}/{key}", None)
            deleted = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys)
            self._answer(200, f"<DeleteResult>{deleted}</DeleteResult>".encode())

    def log_message(self, *_: object) -> None:
        """Log nothing."""

    @contextmanager
    def _begun(self) -> Iterator[str]:
        """Yield the path of the request, unless it fails."""
        with self.server.lock:
            failure = self.server.failures.pop(0) if self.server.failures else ""
            self.server.asked.append(f"{self.command} {self.path}")
            self.lost = failure == "lost"
            self.status = int(failure) if failure.isdecimal() else 0
            yield unquote(urlsplit(self.path).path)

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _answer(self, status: int, body: bytes = b"", content_range: str = "") -> None:
        if self.lost:
            self.close_connection = True
            self.connection.close()
            return
        if self.status:
            status, body = self.status, _error("Failure")
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", f'"{hashlib.md5(body).hexdigest()}"')
        self.send_header("Last-Modified", "Sun, 29 Nov 2026 12:00:00 GMT")
        if content_range:
            self.send_header("Content-Range", content_range)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _listing(self, bucket: str, query: dict[str, list[str]]) -> bytes:
        root = f"{bucket.rstrip('/')}/"
        prefix, after = query.get("prefix", [""])[0], query.get("continuation-token", [""])[0]
        keys = sorted(key.removeprefix(root) for key in self.server.objects if key.startswith(root + prefix))
        rest = [key for key in keys if key > after]
        page, more = rest[:LISTED_AT_A_TIME], len(rest) > LISTED_AT_A_TIME
        contents = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>2026-11-29T12:00:00.000Z</LastModified>"
            f"<ETag>x</ETag><Size>{len(self.server.objects[root + key])}</Size></Contents>"
            for key in page
        )
        token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
        return (
            f"<ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated>{token}{contents}</ListBucketResult>"
        ).encode()


def _error(code: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """Run a server until the end of the block."""
    with S3Server() as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join(10)
