"""The API versions that clients really use, captured by a proxy before the brokers that reads request headers.

    with Capture(bootstrap) as capture:
        ...  # clients use capture.bootstrap
    capture.seen["franz-go"][1]  # versions of Fetch, such as {17}

A client is known by the name it gives itself in ApiVersions or, if it gives none, by its client id.

    python -m tests.integration.api_versions_seen

runs the tests of all stock clients behind a proxy and writes the table in docs/TESTING.md.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import pkgutil
import subprocess
import sys
import tempfile
import textwrap
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Final

from ottla.protocol import messages
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.headers import (
    RequestHeader,
)
from ottla.protocol.wire.codec import decode
from ottla.protocol.wire.schema import Message, Request
from tests.cluster import running_cluster
from tests.integration.proxy import Passage, Proxy

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
"""Column of the table, by the prefix of the name that a client states."""

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

Seen = dict[str, dict[int, set[int]]]
"""Versions by client and key of the API."""


class Capture(Proxy):
    """A proxy that notes the API versions of requests."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self.seen: Seen = defaultdict(lambda: defaultdict(set))
        self.releases: dict[str, str] = {}
        """Releases that clients state."""
        self._names: dict[Passage, str] = {}

    async def request(self, passage: Passage, header: RequestHeader, frame: bytes, position: int) -> None:
        # A client that sends ApiVersions in an older form gives no name, and only has its id.
        if (
            header.api_key == ApiVersionsRequest.api_key
            and 3 <= header.api_version <= ApiVersionsRequest.max_version
        ):
            asked = decode(ApiVersionsRequest, frame, header.api_version, position)
            self._names[passage] = asked.client_software_name
            self.releases[column(asked.client_software_name)] = asked.client_software_version
        client = column(self._names.get(passage) or header.client_id or "unnamed")
        self.seen[client][header.api_key].add(header.api_version)
        await super().request(passage, header, frame, position)

    def over(self, passage: Passage) -> None:
        self._names.pop(passage, None)


def column(given: str) -> str:
    """Return the client for a stated name."""
    return next((client for name, client in NAMES.items() if given.startswith(name)), given)


@contextmanager
def within_table(bootstrap: str, client: str) -> Iterator[str]:
    """Yield addresses for the block, and check afterwards that all versions used by `client` are in the table of
    docs/TESTING.md.
    """
    with Capture(bootstrap) as capture:
        yield capture.bootstrap
    if GENERATING in os.environ:
        return
    documented = table_of(PAGE.read_text())[client]
    spoken = capture.seen[client]
    assert spoken, f"nothing was heard from {client}, but from {sorted(capture.seen)}"
    beyond = {api_name(key): sorted(found - documented[key]) for key, found in spoken.items()}
    beyond = {name: versions for name, versions in beyond.items() if versions}
    assert not beyond, f"{client} speaks what {PAGE.name} does not say: {beyond}; {COMMAND} rewrites it"


@cache
def _names() -> dict[int, str]:
    classes = [
        value
        for module in pkgutil.iter_modules(messages.__path__)
        for value in vars(importlib.import_module(f"{messages.__name__}.{module.name}")).values()
        if isinstance(value, type) and issubclass(value, Message)
    ]
    return {
        request.api_key: request.__name__.removesuffix("Request")
        for request in classes
        if request.__name__.endswith("Request") and request is not Request
    }


def api_name(key: int) -> str:
    """Return Kafka's name of an API, or its number."""
    return _names().get(key, str(key))


def render(seen: Seen, releases: Mapping[str, str]) -> str:
    """Return the table, and the releases to which it applies."""
    clients = [client for client in dict.fromkeys(NAMES.values()) if client in seen]
    keys = sorted({key for client in clients for key in seen[client]})
    lines = ["| key | API | " + " | ".join(clients) + " |", "|---" * (len(clients) + 2) + "|"]
    for key in keys:
        cells = [", ".join(map(str, sorted(seen[client].get(key, ())))) for client in clients]
        lines.append(f"| {key} | {api_name(key)} | " + " | ".join(cells) + " |")
    of = ", ".join(f"{client} {releases[client]}" for client in clients)
    return "\n".join([*lines, "", textwrap.fill(f"Seen of {of}.", 120)])


def table_of(page: str) -> Seen:
    """Return the table in the text of the page."""
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
