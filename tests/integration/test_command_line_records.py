"""Records through the command line and a real cluster: out as JSON and in again, byte for byte."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ottla import Consumer, Producer, TopicPartition
from ottla.client.records import LOG_APPEND_TIME, ConsumerRecord
from tests.commands import run_ottla

pytestmark = pytest.mark.cluster

Run = Callable[..., subprocess.CompletedProcess[str]]
BINARY = bytes(range(256))
TIME_MS = 1_700_000_000_000
Sent = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]
"""The key, value and headers of a record."""
RECORDS: list[Sent] = [
    (b"key", b"value", []),
    (None, b"no key", [("a", b"1"), ("b", b"2"), ("a", b"3"), ("a", None), ("", b"")]),
    (b"gone", None, []),
    (b"", b"", [("binary", BINARY), ("text", "\u00e4\u2028".encode())]),
    (BINARY, BINARY, []),
    (b"\xed\xa0\x80", b'{"a": "\\u0000"}\n\r\t\x1b', [("\U0001f600", b"\xff")]),
]


@pytest.fixture
def ottla(bootstrap: str) -> Run:
    """Run a command with an exit code of 0, or of `code`."""

    def run(*words: str, code: int = 0, data: str = "") -> subprocess.CompletedProcess[str]:
        done = run_ottla(*words, given=data, environ={**os.environ, "OTTLA_BOOTSTRAP": bootstrap})
        assert done.returncode == code, (words, done.stdout, done.stderr)
        return done

    return run


@pytest.fixture
def shell(bootstrap: str) -> Callable[[str], str]:
    """Run a line of a shell in which `ottla` is the command, and return its output."""

    def run(line: str) -> str:
        line = f'ottla() {{ "{sys.executable}" -m ottla "$@"; }}; set -e -o pipefail; {line}'
        environ = {**os.environ, "OTTLA_BOOTSTRAP": bootstrap}
        done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60, env=environ)
        assert (done.returncode, done.stderr) == (0, ""), done
        return done.stdout

    return run


@pytest.fixture
def topic(admin: AdminClient) -> Callable[..., str]:
    """Return a function that creates a topic of two partitions."""

    def create(**config: str) -> str:
        name = f"records-{uuid.uuid4().hex[:8]}"
        # Records are old: retention would delete them.
        settings = {"retention.ms": "-1"} | {key.replace("_", "."): value for key, value in config.items()}
        admin.create_topics([NewTopic(name, 2, 1, config=settings)])[name].result(60)
        return name

    return create


async def send(producer: Producer, topic: str, records: list[Sent]) -> None:
    for number, (key, value, headers) in enumerate(records):
        await producer.send(topic, value, key, partition=1, headers=headers, timestamp_ms=TIME_MS + number)
    await producer.flush()


async def fill(bootstrap: str, topic: str) -> None:
    """Write RECORDS to partition 1: alone, and between the records of an aborted and a committed transaction."""
    async with (
        Producer(bootstrap_servers=bootstrap) as plain,
        Producer(bootstrap_servers=bootstrap, transactional_id=f"id-{topic}") as producer,
    ):
        await send(plain, topic, RECORDS)
        await producer.begin_transaction()
        await producer.send(topic, b"aborted", partition=1)
        await producer.flush()
        await producer.abort_transaction()
        async with producer.transaction():
            await send(producer, topic, RECORDS[::-1])


async def read(bootstrap: str, topic: str) -> list[ConsumerRecord]:
    """Return the committed records of a topic, by partition."""
    partitions = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    found: dict[TopicPartition, list[ConsumerRecord]] = {partition: [] for partition in partitions}
    async with Consumer(bootstrap_servers=bootstrap, isolation_level="read_committed") as consumer:
        consumer.assign(partitions)
        for partition in partitions:
            consumer.seek(partition, 0)
        ends = await consumer.end_offsets(partitions)
        while any([await consumer.position(partition) < ends[partition] for partition in partitions]):
            for partition, records in (await consumer.getmany(timeout_ms=200)).items():
                found[partition] += records
    return [record for partition in partitions for record in found[partition]]


def content(record: ConsumerRecord) -> tuple[object, ...]:
    return record.key, record.value, list(record.headers), record.timestamp_ms


async def test_records_pass_through_json_byte_for_byte(
    bootstrap: str, topic: Callable[..., str], shell: Callable[[str], str], tmp_path: Path
) -> None:
    source, target = topic(), topic()
    await fill(bootstrap, source)
    shell(
        f"ottla consume {source} -e --committed --output json"
        f" | ottla produce {target} --input json --keep-partitions"
    )
    written, copied = await read(bootstrap, source), await read(bootstrap, target)
    assert len(written) == 2 * len(RECORDS)
    assert [content(record) for record in written] == [
        (*record, TIME_MS + number)
        for records in (RECORDS, RECORDS[::-1])
        for number, record in enumerate(records)
    ]
    assert list(map(content, copied)) == list(map(content, written))
    assert {record.partition for record in copied} == {1}
    # Neither markers nor the records of the aborted transaction have come along.
    assert [record.offset for record in copied] == list(range(len(written)))


async def test_a_file_of_records_is_sent_with_further_headers(
    bootstrap: str, topic: Callable[..., str], shell: Callable[[str], str], tmp_path: Path
) -> None:
    source, target = topic(), topic(message_timestamp_type="LogAppendTime")
    await fill(bootstrap, source)
    file = tmp_path / "records"
    shell(f"ottla consume {source} -e -c 3 --output json > {file}")
    shell(f"ottla produce {target} --input json -p 0 -H from={source} {file}")
    copied = await read(bootstrap, target)
    assert [(record.key, record.value, list(record.headers)) for record in copied] == [
        (key, value, [("from", source.encode()), *headers]) for key, value, headers in RECORDS[:3]
    ]
    assert {(record.partition, record.timestamp_type) for record in copied} == {(0, LOG_APPEND_TIME)}
    line = json.loads(shell(f"ottla consume {target} -c 1 --output json"))
    assert line["timestamp_type"] == "LogAppendTime"
    assert line["timestamp_ms"] > TIME_MS


def test_a_line_that_is_no_record_is_named_with_the_records_before_it(
    ottla: Run, topic: Callable[..., str]
) -> None:
    name = topic()
    lines = '{"value": "1"}\n{"value": "2"}\n'

    def refused(data: str, *words: str) -> str:
        return ottla("produce", name, *words, data=data, code=1).stderr

    assert refused(f'{lines}{{"vaule": "3"}}\n', "--input", "json") == (
        "ottla produce: line 3 of standard input: there is no field 'vaule'; there are topic, partition, offset, "
        "timestamp_ms, timestamp_type, key, key_base64, value, value_base64, headers, headers_base64; "
        "records written before it: 2\n"
    )
    assert (
        "line 1 of standard input: it is no JSON: Expecting value, at character 1; records written before it: 0"
        in (refused("\n", "--input", "json"))
    )
    assert "line 3 of standard input: " in (
        further := refused(lines + '{"value": "3", "partition": 7}\n', "--input", "json", "--keep-partitions")
    )
    assert "7" in further
    assert further.endswith("records written before it: 2\n")
    assert "line 2 of standard input: it does not fit -f '%k=%s': b'x'; records written before it: 1" in (
        refused("k=v\nx\n", "-f", "%k=%s")
    )
    assert "line 2 of standard input: the line is longer than 1048576 bytes, which is the most" in (
        refused("v\n" + "x" * 1_500_000)
    )
    values = ottla("consume", name, "-e").stdout.splitlines()
    assert sorted(values) == ["1", "1", "2", "2", "v", "v"]
