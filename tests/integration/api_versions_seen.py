"""Which versions of which APIs clients really speak: a proxy before the brokers that reads request headers.

    with Capture(bootstrap) as capture:
        ...  # clients use capture.bootstrap
    capture.seen["franz-go"][1]  # versions of Fetch, such as {17}

Answers that name brokers (Metadata, FindCoordinator, DescribeCluster) are rewritten so that clients stay behind the
proxy; everything else passes through as it came. A client is known by the name it gives itself in ApiVersions or,
if it gives none, by its client id.

    python -m tests.integration.api_versions_seen

runs the tests of all stock clients behind a proxy and writes the table in docs/TESTING.md.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.metadata
import json
import os
import pkgutil
import subprocess
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from ottla.protocol import messages
from ottla.protocol.codec import decode, encode
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.cluster import DescribeClusterRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.headers import (
    RequestHeader,
    decode_request_header,
    decode_response,
    response_header,
)
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.schema import Message, Request
from tests.cluster import running_cluster

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "TESTING.md"
NODE_PACKAGE: Final = Path(__file__).with_name("node") / "package.json"
GENERATING: Final = "OTTLA_TEST_VERSIONS_ARE_BEING_WRITTEN"
COMMAND: Final = "python -m tests.integration.api_versions_seen"
BEGIN, END = "<!-- versions: begin -->", "<!-- versions: end -->"

NAMES: Final[Mapping[str, str]] = {
    "confluent-kafka-python": "confluent-kafka",
    "apache-kafka-java": "Java",
    "kgo": "franz-go",
    "librdkafka": "kcat",
    "rdkafka": "kcat",
    "kafkajs": "kafkajs",
    "aiokafka": "aiokafka",
    "kafka-python": "kafka-python",
}
"""Column of the table by how the name begins that a client gives itself."""

CLIENT_TESTS: Final = (
    "test_confluent_kafka.py",
    "test_aiokafka.py",
    "test_kafka_python.py",
    "test_kcat.py",
    "test_compression.py",
    "test_group_crash.py",
    "test_java.py",
    "test_java_tools.py",
    "test_quotas.py",
    "test_franz_go.py",
    "test_node_clients.py",
    "test_transaction_tools.py",
    "test_transactions.py",
    "test_transactions_confluent.py",
    "test_exactly_once.py",
    "test_zombies.py",
)
_NAMING_BROKERS: Final = {
    one.api_key: one for one in (MetadataRequest, FindCoordinatorRequest, DescribeClusterRequest)
}

Seen = dict[str, dict[int, set[int]]]
"""Versions by client and key of the API."""


class Capture:
    """A proxy with one port per broker, on a thread of its own, until the block ends."""

    def __init__(self, bootstrap: str) -> None:
        self.seen: Seen = defaultdict(lambda: defaultdict(set))
        self.releases: dict[str, str] = {}
        """What clients say of their release."""
        self._given = bootstrap
        self._ports: dict[tuple[str, int], int] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="capture")
        self._servers: list[asyncio.Server] = []
        self._connections: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        for address in self._given.split(","):
            host, _, port = address.rpartition(":")
            self._on_loop(self._port_for(host, int(port)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._on_loop(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def bootstrap(self) -> str:
        """Addresses of the proxy."""
        return ",".join(f"127.0.0.1:{port}" for port in self._ports.values())

    def _on_loop(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _port_for(self, host: str, port: int) -> int:
        """The proxy's port for a broker, opened when the broker is first heard of."""
        if (host, port) not in self._ports:

            async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                task = asyncio.current_task()
                assert task is not None
                self._connections.add(task)
                task.add_done_callback(self._connections.discard)
                with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                    await _Connection(self, host, port).run(reader, writer)
                writer.close()

            server = await asyncio.start_server(serve, "127.0.0.1", 0)
            self._servers.append(server)
            self._ports[host, port] = server.sockets[0].getsockname()[1]
        return self._ports[host, port]

    async def rewrite(self, value: object) -> None:
        """Put the proxy's addresses in place of the brokers' wherever the message names any."""
        if isinstance(value, list):
            for one in value:
                await self.rewrite(one)
        elif hasattr(value, "__slots__"):
            host, port = getattr(value, "host", None), getattr(value, "port", -1)
            if host and port > 0:
                value.port = await self._port_for(host, port)  # type: ignore[attr-defined]
                value.host = "127.0.0.1"  # type: ignore[attr-defined]
            for name in ("brokers", "coordinators"):
                await self.rewrite(getattr(value, name, None))

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)


class _Connection:
    """One connection of a client, and the one to the broker behind it."""

    def __init__(self, capture: Capture, host: str, port: int) -> None:
        self._capture, self._host, self._port = capture, host, port
        self._client: str | None = None
        self._naming: dict[int, RequestHeader] = {}
        self._early: list[tuple[int, int]] = []

    async def run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream_reader, upstream_writer = await asyncio.open_connection(self._host, self._port)
        both = [
            asyncio.ensure_future(self._requests(reader, upstream_writer)),
            asyncio.ensure_future(self._responses(upstream_reader, writer)),
        ]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in both:
                one.cancel()
            await asyncio.gather(*both, return_exceptions=True)
            upstream_writer.close()

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            size = await reader.readexactly(4)
            frame = await reader.readexactly(int.from_bytes(size, "big"))
            header, position = decode_request_header(frame)
            self._note(header, frame, position)
            if header.api_key in _NAMING_BROKERS:
                self._naming[header.correlation_id] = header
            writer.write(size + frame)
            await writer.drain()

    async def _responses(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            size = await reader.readexactly(4)
            frame = await reader.readexactly(int.from_bytes(size, "big"))
            header = self._naming.pop(int.from_bytes(frame[:4], "big", signed=True), None)
            if header is not None:
                request = _NAMING_BROKERS[header.api_key]
                _, message = decode_response(request, frame, header.api_version)
                await self._capture.rewrite(message)
                frame = response_header(header.api_key, header.api_version, header.correlation_id)
                frame += encode(message, header.api_version)
                size = len(frame).to_bytes(4, "big")
            writer.write(size + frame)
            await writer.drain()

    def _note(self, header: RequestHeader, frame: bytes, position: int) -> None:
        # Who asks for versions in an older form gives no name, and has only its id.
        if (
            header.api_key == ApiVersionsRequest.api_key
            and 3 <= header.api_version <= ApiVersionsRequest.max_version
        ):
            asked = decode(ApiVersionsRequest, frame, header.api_version, position)
            self._client = asked.client_software_name
            self._capture.releases[column(self._client)] = asked.client_software_version
        client = column(self._client or header.client_id or "unnamed")
        self._capture.seen[client][header.api_key].add(header.api_version)


def column(given: str) -> str:
    """The client that calls itself so."""
    return next((client for name, client in NAMES.items() if given.startswith(name)), given)


@contextmanager
def within_table(bootstrap: str, client: str) -> Iterator[str]:
    """Addresses to use in the block, after which what `client` spoke has to be in the table of docs/TESTING.md."""
    with Capture(bootstrap) as capture:
        yield capture.bootstrap
    if GENERATING in os.environ:
        return
    documented = table_of(PAGE.read_text())[client]
    spoken = capture.seen[client]
    assert spoken, f"nothing was heard from {client}, but from {sorted(capture.seen)}"
    beyond = {api_name(key): sorted(found - documented[key]) for key, found in spoken.items()}
    beyond = {name: versions for name, versions in beyond.items() if versions}
    assert not beyond, f"{client} speaks what {PAGE.name} does not say: {beyond}; {COMMAND} writes it anew"


@cache
def _names() -> dict[int, str]:
    classes = [
        value
        for module in pkgutil.iter_modules(messages.__path__)
        for value in vars(importlib.import_module(f"{messages.__name__}.{module.name}")).values()
        if isinstance(value, type) and issubclass(value, Message)
    ]
    return {
        one.api_key: one.__name__.removesuffix("Request")
        for one in classes
        if one.__name__.endswith("Request") and one is not Request
    }


def api_name(key: int) -> str:
    """Kafka's name of an API, or its number."""
    return _names().get(key, str(key))


def render(seen: Seen, releases: Mapping[str, str]) -> str:
    """The table, and which releases it is of."""
    clients = [client for client in dict.fromkeys(NAMES.values()) if client in seen]
    keys = sorted({key for client in clients for key in seen[client]})
    lines = ["| key | API | " + " | ".join(clients) + " |", "|---" * (len(clients) + 2) + "|"]
    for key in keys:
        cells = [", ".join(map(str, sorted(seen[client].get(key, ())))) for client in clients]
        lines.append(f"| {key} | {api_name(key)} | " + " | ".join(cells) + " |")
    of = ", ".join(f"{client} {releases[client]}" for client in clients)
    return "\n".join([*lines, "", f"Seen of {of}."])


def table_of(page: str) -> Seen:
    """The table as it stands in the page."""
    head, _, *rows = page.partition(BEGIN)[2].partition(END)[0].strip().split("\n\n")[0].splitlines()
    clients = [cell.strip() for cell in head.strip("|").split("|")][2:]
    found: Seen = defaultdict(lambda: defaultdict(set))
    for row in rows:
        key, _, *cells = (cell.strip() for cell in row.strip("|").split("|"))
        for client, cell in zip(clients, cells, strict=True):
            if cell:
                found[client][int(key)] = {int(version) for version in cell.split(", ")}
    return found


def main() -> int:
    """Run all clients' tests behind a proxy; write the table if they pass."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        settings = {"group.initial.rebalance.delay.ms": "200", "quota.window.num": "3"}
        cluster = stack.enter_context(running_cluster(Path(folder), settings=settings))
        capture = stack.enter_context(Capture(cluster.bootstrap))
        described = Path(folder) / "captured.json"
        described.write_text(json.dumps({**cluster.description, "bootstrap": capture.bootstrap}))
        files = [str(Path(__file__).with_name(name)) for name in CLIENT_TESTS]
        argv = [sys.executable, "-m", "pytest", "-n", "0", *files]
        environment = {**os.environ, "OTTLA_TEST_CLUSTER": str(described), GENERATING: "1"}
        if code := subprocess.run(argv, cwd=ROOT, env=environment, check=False).returncode:
            return code
    for client in ("aiokafka", "kafka-python"):
        capture.releases[client] = importlib.metadata.version(client)
    capture.releases["kafkajs"] = json.loads(NODE_PACKAGE.read_text())["dependencies"]["kafkajs"]
    page = PAGE.read_text()
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n{render(capture.seen, capture.releases)}\n{END}{after}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
