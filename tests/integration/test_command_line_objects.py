"""Large values in an object store through the command line: printed, and swept once no record refers to them."""

from __future__ import annotations

import json
import os
import subprocess
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla import Admin, NewTopic, Producer, TopicPartition
from ottla.client.objects.references import REFERENCE_HEADER, ObjectReference
from tests.commands import run_ottla

pytestmark = pytest.mark.cluster

Run = Callable[..., subprocess.CompletedProcess[str]]
DAY_S = 86_400


@pytest.fixture
def ottla(bootstrap: str) -> Run:
    """Run a command with an exit code of 0, or of `code`."""

    def run(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = run_ottla(*words, environ={**os.environ, "OTTLA_BOOTSTRAP": bootstrap})
        assert done.returncode == code, (words, done.stdout, done.stderr)
        return done

    return run


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Return the folder of an empty store."""
    (tmp_path / "store").mkdir()
    return tmp_path / "store"


@pytest.fixture
def swept(ottla: Run, store: Path) -> Callable[..., dict[str, Any]]:
    """Sweep a topic, and return the row about it."""

    def sweep(topic: str, *words: str) -> dict[str, Any]:
        done = ottla("objects", "sweep", topic, "--store", store.as_uri(), "-y", "-o", "json", *words)
        (row,) = json.loads(done.stdout)["topics"]
        return dict(row)

    return sweep


async def create(bootstrap: str, **configs: str) -> str:
    name = f"objects-{uuid.uuid4().hex[:8]}"
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic(name, 2, 1, configs=settings)])
    return name


async def write(
    bootstrap: str, store: Path, topic: str, values: list[bytes], *, days_ago: int, **options: Any
) -> None:
    """Write values as objects that were created some days ago, by the clocks of the producer and of the store."""
    created_s = time.time() - days_ago * DAY_S
    before = set(files(store))
    async with Producer(
        bootstrap_servers=bootstrap,
        large_messages="reference",
        large_message_store=store.as_uri(),
        large_message_segment_size=10,
        **options,
    ) as producer:
        referrer = producer.steps.parts.referrer
        assert referrer is not None
        referrer._clock = lambda: created_s
        if "transactional_id" in options:
            await producer.begin_transaction()
        for number, value in enumerate(values):
            await producer.send_and_wait(topic, value, key=b"k", partition=number % 2)
        if "transactional_id" in options:
            await producer.abort_transaction()
    for path in set(files(store)) - before:
        os.utime(path, (created_s, created_s))


def files(store: Path) -> list[Path]:
    return [path for path in store.rglob("*") if path.is_file()]


def contents(store: Path) -> list[bytes]:
    return sorted(path.read_bytes() for path in files(store))


def value(number: int) -> bytes:
    return b"value %d with more than ten bytes" % number


async def test_objects_are_deleted_once_no_record_refers_to_them(
    bootstrap: str, store: Path, ottla: Run, swept: Callable[..., dict[str, Any]]
) -> None:
    topic = await create(bootstrap, retention_ms=str(2 * DAY_S * 1000))
    await write(bootstrap, store, topic, [value(n) for n in range(4)], days_ago=10)
    await write(bootstrap, store, topic, [value(n) for n in range(4, 8)], days_ago=2)
    other = await create(bootstrap)
    await write(bootstrap, store, other, [value(100)], days_ago=10)
    assert swept(topic)["deleted"] == 0, (
        "all records are live, though retention has passed by the objects' clock"
    )
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.delete_records({TopicPartition(topic, 0): 3, TopicPartition(topic, 1): 1})
    before = contents(store)
    row = swept(topic, "--dry-run")
    assert (row["objects"], row["referenced_and_old"], row["to_delete"]) == (8, 1, 3)
    assert row["to_delete_bytes"] == 3 * len(value(0))
    assert contents(store) == before
    assert swept(topic)["deleted"] == 3
    left = [value(3), *(value(n) for n in range(4, 8)), value(100)]
    assert contents(store) == sorted(left), "young objects are kept, referenced or not"
    table = ottla("objects", "sweep", topic, "--store", store.as_uri(), "-y").stdout
    assert "TOPIC" in table
    assert topic in table


@pytest.mark.parametrize(
    "configs",
    [{"cleanup_policy": "compact"}, {"retention_ms": "-1"}, {"cleanup_policy": "compact,delete"}],
    ids=str,
)
async def test_a_topic_that_keeps_records_for_ever_keeps_their_objects(
    bootstrap: str, store: Path, swept: Callable[..., dict[str, Any]], configs: dict[str, str]
) -> None:
    topic = await create(bootstrap, **configs)
    await write(bootstrap, store, topic, [value(n) for n in range(4)], days_ago=400)
    orphan = next(path for path in files(store))
    copy = orphan.with_name("0" * 32)
    copy.write_bytes(b"without a record")
    os.utime(copy, (orphan.stat().st_mtime,) * 2)
    row = swept(topic)
    assert (row["deleted"], row["referenced_and_old"]) == (1, 4)
    assert contents(store) == [value(n) for n in range(4)]


async def test_records_of_aborted_transactions_and_junk_are_taken_as_they_are(
    bootstrap: str, store: Path, ottla: Run, swept: Callable[..., dict[str, Any]]
) -> None:
    topic = await create(bootstrap)
    await write(bootstrap, store, topic, [value(1)], days_ago=30, transactional_id=topic)
    mark = [(REFERENCE_HEADER, b"")]
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for junk in (b"junk", None, ObjectReference("../../x", 1, bytes(32)).encoded()):
            await producer.send_and_wait(topic, junk, headers=mark)
        assert swept(topic)["deleted"] == 0, "the aborted record is in the log"
        later = ObjectReference("a", 1, bytes(32)).encoded()
        await producer.send_and_wait(topic, later[:8] + b"\2" + later[9:], headers=mark)
    refused = ottla("objects", "sweep", topic, "--store", store.as_uri(), "-y", code=1)
    assert "nothing is deleted" in refused.stderr
    assert "version 2" in refused.stderr


async def test_objects_of_a_deleted_topic_go_only_if_they_are_asked_for(
    bootstrap: str, store: Path, ottla: Run, swept: Callable[..., dict[str, Any]]
) -> None:
    topic = await create(bootstrap)
    await write(bootstrap, store, topic, [value(1)], days_ago=30)
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.delete_topics([topic])
        refused = ottla("objects", "sweep", topic, "--store", store.as_uri(), "-y", code=1)
        assert "there is no topic" in refused.stderr
        assert "--earlier-topics" in refused.stderr
        await admin.create_topics([NewTopic(topic, 2, 1)])
    await write(bootstrap, store, topic, [value(2)], days_ago=30)
    row = swept(topic)
    assert (row["of_earlier_topics"], row["deleted"]) == (1, 0)
    assert swept(topic, "--earlier-topics")["deleted"] == 1
    assert contents(store) == [value(2)]


def test_wrong_words_are_refused(ottla: Run, store: Path) -> None:
    young = ottla("objects", "sweep", "t", "--store", store.as_uri(), "--older-than", "10m", code=2)
    assert "at least 1h" in young.stderr
    url = ottla("objects", "sweep", "t", "--store", "https://bucket/x", code=2)
    assert "the URL of an object store is file:///FOLDER" in url.stderr
    assert "--store" in ottla("consume", "t", "--store", "s3://key:secret@bucket", code=2).stderr


async def test_consume_fetches_values_or_prints_references(bootstrap: str, store: Path, ottla: Run) -> None:
    topic = await create(bootstrap)
    await write(bootstrap, store, topic, [value(1)], days_ago=0)
    assert ottla("consume", topic, "-e", "--store", store.as_uri()).stdout == f"{value(1).decode()}\n"
    lacking = ottla("consume", topic, "-e", code=1)
    assert (
        f"{topic}-0: the value of the record at offset 0 is in an object store: --store URL" in lacking.stderr
    )
    (record,) = ottla("consume", topic, "-e", "--references", "--output", "json").stdout.splitlines()
    assert [name for name, _ in json.loads(record)["headers"]] == [REFERENCE_HEADER]
    for path in files(store):
        path.unlink()
    missing = ottla("consume", topic, "-e", "--store", store.as_uri(), code=1)
    assert "there is no object with this key" in missing.stderr
    assert f"ottla consume {topic} -p 0 -o 1" in missing.stderr
