"""Stock clients in every cell of a secured cluster: protocol, mechanism, and all actions of a client.

Each client goes through all cells in one program, since its start is the largest cost.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests import java
from tests.integration import secured_clients
from tests.integration.foreign_builds import (
    franz,
    needs_go,
    needs_node,
    needs_node_22,
    node_folder,
    platformatic,
)
from tests.integration.secured_cells import OAUTHBEARER, TOLD, Cell, acting_for_brokers, cells
from tests.integration.tls_cluster import TlsCluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]
AT_ONCE = 4


@pytest.mark.parametrize("client", ["confluent-kafka", "kafka-python"])
def test_python_clients(client: str, secured: TlsCluster) -> None:
    walk: Callable[[Cell], dict[str, Any]] = {
        "confluent-kafka": secured_clients.with_confluent_kafka,
        "kafka-python": secured_clients.with_kafka_python,
    }[client]
    ways = cells(secured, client)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        reports = dict(zip([cell.name for cell in ways], pool.map(walk, ways), strict=True))
    check(ways, reports, TOLD)


async def test_aiokafka(secured: TlsCluster) -> None:
    ways = cells(secured, "aiokafka")
    reports = await asyncio.gather(*(secured_clients.with_aiokafka(cell) for cell in ways))
    check(ways, dict(zip([cell.name for cell in ways], reports, strict=True)), TOLD)


def check(
    ways: Sequence[Cell], reports: Mapping[str, Mapping[str, Any]], expected: Mapping[str, Any]
) -> None:
    """Check that every cell reported the expected results; only differences are shown."""
    assert set(reports) == {cell.name for cell in ways}
    assert {
        name: {key: (found.get(key), wanted) for key, wanted in expected.items() if found.get(key) != wanted}
        for name, found in reports.items()
        if found != expected
    } == {}


def other_language(
    secured: TlsCluster,
    client: str,
    argv: Sequence[str],
    cwd: Path | None = None,
    expected: Mapping[str, Any] = TOLD,
) -> None:
    """Run the program that goes through all cells, which are appended to its arguments."""
    ways = cells(secured, client)
    done = subprocess.run(
        [*argv, json.dumps([cell.described for cell in ways])],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    check(ways, json.loads(done.stdout), expected)


@pytest.mark.java
@java.needs_java
def test_java(secured: TlsCluster) -> None:
    other_language(secured, "java", java.compiled_command("SecuredClients"))


@needs_go
def test_franz_go(secured: TlsCluster) -> None:
    other_language(secured, "franz-go", [franz(), "secured", "", ""])


@needs_node
def test_kafkajs(secured: TlsCluster) -> None:
    other_language(secured, "kafkajs", ["node", "secured.js"], node_folder())


@needs_node_22
def test_platformatic(secured: TlsCluster) -> None:
    """@platformatic/kafka adds partitions to a transaction by the brokers' request, and needs their right."""
    with acting_for_brokers(secured):
        node, program = platformatic()
        other_language(secured, "platformatic", [node, str(Path(program).with_name("secured.mjs"))])


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
def test_kcat(secured: TlsCluster) -> None:
    """Tokens are excluded, since kcat would request them itself."""
    ways = [cell for cell in cells(secured, "kcat") if cell.mechanism != OAUTHBEARER]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        reports = dict(
            zip([cell.name for cell in ways], pool.map(secured_clients.with_kcat, ways), strict=True)
        )
    expected = {"partitions": 1, "read": TOLD["read"], "denied": TOLD["denied"]}
    check(ways, reports, expected)
