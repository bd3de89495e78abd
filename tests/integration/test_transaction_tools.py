"""`ottla txn`, and Kafka's corresponding tool."""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ottla.client.failures import TransactionFailed
from ottla.client.producer import Producer
from ottla.client.transactions.writer import TransactionWriter
from tests import java
from tests.cluster import wait_until
from tests.commands import run_ottla
from tests.integration.api_versions_seen import within_table

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

TOOL = "org.apache.kafka.tools.TransactionsCommand"
Run = Callable[..., Any]


@pytest.fixture
def txn(bootstrap: str) -> Run:
    """Run `ottla txn` in a process; return its JSON, or its message on an exit with 1."""

    def run(*words: str, code: int = 0) -> Any:
        done = run_ottla("txn", *words, "-b", bootstrap, "-o", "json")
        assert done.returncode == code, (words, done.stdout, done.stderr)
        return json.loads(done.stdout) if done.stdout else done.stderr

    return run


@pytest.fixture
def name() -> str:
    return f"id-{uuid.uuid4().hex[:10]}"


@asynccontextmanager
async def opened(bootstrap: str, name: str, topic: str) -> AsyncIterator[tuple[Producer, str]]:
    """Open a transaction whose owner has written to partition 0, and a joined writer to partition 1; yield the owner
    and the token.
    """
    async with Producer(bootstrap_servers=bootstrap, transactional_id=name) as owner:
        transaction = await owner.begin()
        await (await owner.send(topic, b"owner", partition=0))
        async with TransactionWriter.join(transaction.token, bootstrap_servers=bootstrap) as writer:
            await (await writer.send(topic, b"joined", partition=1))
            await writer.finish()
        yield owner, transaction.token


async def test_an_open_transaction_is_shown_and_aborted(
    txn: Run, bootstrap: str, new_topic: str, name: str
) -> None:
    async with opened(bootstrap, name, new_topic) as (owner, _):
        (listed,) = await asyncio.to_thread(txn, "list", name, "--state", "Ongoing")
        assert (listed["transactional_id"], listed["state"]) == (name, "Ongoing")
        assert await asyncio.to_thread(txn, "list", "-r", name, "--open-longer-than", "1h") == []
        (shown,) = await asyncio.to_thread(txn, "describe", name)
        assert (shown["state"], shown["coordinator"]) == ("Ongoing", listed["coordinator"])
        assert shown["partitions"] == [[new_topic, 0], [new_topic, 1]]
        where = ("--topic", new_topic, "--max-timeout", "0ms")
        assert await asyncio.to_thread(txn, "find-hanging", *where) == []

        assert await asyncio.to_thread(txn, "abort", name) == [
            {"transactional_id": name, "result": "aborted"}
        ]
        with pytest.raises(TransactionFailed):
            await owner.commit_transaction()
    wait_until(lambda: txn("describe", "-s", name)[0]["state"] == "CompleteAbort", "the abort is complete")
    again = txn("abort", name)
    assert again == [{"transactional_id": name, "result": "not open: CompleteAbort"}]


async def test_ids_are_deleted_but_for_those_that_are_in_use(
    txn: Run, bootstrap: str, new_topic: str, name: str
) -> None:
    other, unknown = f"{name}-over", f"{name}-none"
    async with (
        Producer(bootstrap_servers=bootstrap, transactional_id=other) as producer,
        producer.transaction(app_version=3),
    ):
        await producer.send(new_topic, b"over")
    async with opened(bootstrap, name, new_topic) as (owner, _):
        said = await asyncio.to_thread(txn, "delete", name, code=1)
        assert f"'{name}' is open: abort it first" in said
        assert await asyncio.to_thread(txn, "delete", name, other, unknown, other, code=1) == [
            {"transactional_id": name, "result": "failed"},
            {"transactional_id": other, "result": "deleted"},
            {"transactional_id": unknown, "result": "failed"},
        ]
        assert await asyncio.to_thread(txn, "list", other) == []
        await owner.commit_transaction()
    deleted = [{"transactional_id": name, "result": "deleted"}]
    assert await asyncio.to_thread(txn, "delete", "-r", f"{name}.*") == deleted
    assert await asyncio.to_thread(txn, "list", "-r", f"{name}.*") == []
    async with Producer(bootstrap_servers=bootstrap, transactional_id=other) as producer:
        assert producer.last_app_version is None


def test_what_there_is_not_is_said(txn: Run, name: str) -> None:
    assert "TRANSACTIONAL_ID_NOT_FOUND" in txn("describe", name, code=1)
    assert "TRANSACTIONAL_ID_NOT_FOUND" in txn("abort", name, code=1)
    assert "TRANSACTIONAL_ID_NOT_FOUND" in txn("delete", name, code=1)
    assert f"no transactional id matches {name}" in txn("delete", "-r", name, code=1)
    assert f"no transactional id matches {name}" in txn("describe", "-r", name, code=1)
    assert txn("list", name) == []


@pytest.fixture
def tool(bootstrap: str) -> Iterator[Run]:
    """Run Kafka's tool with the addresses of the cluster."""
    with java.Tools() as tools, within_table(bootstrap, "Java") as captured:
        yield lambda *words, status=0: tools.run(TOOL, "--bootstrap-server", captured, *words, status=status)


def rows(text: str) -> list[list[str]]:
    """Return the table's rows below its header."""
    return [line.split() for line in text.splitlines()[1:] if "\t" in line]


@java.needs_java
@pytest.mark.java
async def test_the_tool_of_kafka_sees_the_same(tool: Run, bootstrap: str, new_topic: str, name: str) -> None:
    async with opened(bootstrap, name, new_topic) as (owner, _):
        # The tool pads its table to the longest id, and other tests leave thousands behind, and some of 30,000 letters.
        pattern = ("--transactional-id-pattern", f"{name[:8]}.*")
        for filters in ((), ("--duration-filter", "0")):
            found = {row[0]: row for row in rows(await asyncio.to_thread(tool, "list", *pattern, *filters))}
            assert found[name][3] == "Ongoing"
        (shown,) = rows(await asyncio.to_thread(tool, "describe", "--transactional-id", name))
        assert shown[4] == "Ongoing"
        assert sorted(shown[-1].split(",")) == [f"{new_topic}-0", f"{new_topic}-1"]
        producers = await asyncio.to_thread(
            tool, "describe-producers", "--topic", new_topic, "--partition", "1"
        )
        (joined,) = rows(producers)
        assert joined[0] != shown[2]
        assert joined[-1] == "0"
        hanging = ("find-hanging", "--topic", new_topic, "--max-transaction-timeout", "0")
        assert rows(await asyncio.to_thread(tool, *hanging)) == []
        await owner.commit_transaction()
    said = await asyncio.to_thread(tool, "describe", "--transactional-id", f"{name}-not", status=1)
    assert re.search(r"ID could not be found", said)
