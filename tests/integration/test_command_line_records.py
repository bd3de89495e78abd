"""Records through the command line and a real cluster: chosen by place and content, and out and in again as JSON."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
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
    large = refused(lines + json.dumps({"value": "x" * 1_100_000}), "--input", "json")
    assert large.startswith("ottla produce: line 3 of standard input: ")
    assert large.endswith("(MESSAGE_TOO_LARGE); records written before it: 2\n")
    assert "line 2 of standard input: it does not fit -f '%k=%s': b'x'; records written before it: 1" in (
        refused("k=v\nx\n", "-f", "%k=%s")
    )
    assert "line 2 of standard input: the line is longer than 1048576 bytes, which is the most" in (
        refused("v\n" + "x" * 1_500_000)
    )
    values = ottla("consume", name, "-e").stdout.splitlines()
    assert sorted(values) == ["1", "1", "2", "2", "v", "v"]


# ------------------------------------------------------------ places and filters


@pytest.fixture
def orders(ottla: Run, topic: Callable[..., str]) -> str:
    """Return a topic with 10 records in partition 0 and 20 in partition 1, a millisecond apart."""
    name = topic()
    for partition, count in ((0, 10), (1, 20)):
        lines = "".join(
            json.dumps({
                "partition": partition,
                "timestamp_ms": TIME_MS + number,
                "key": f"k{number}",
                "value": json.dumps({"n": number, "customer": f"c-{number % 3}"}),
                "headers": [["origin", "web" if number % 2 else "shop"], *([["odd", None]] if number % 2 else [])],
            }) + "\n"
            for number in range(count)
        )  # fmt: skip
        ottla("produce", name, "--input", "json", "--keep-partitions", data=lines)
    return name


def offsets(ottla: Run, topic: str, *words: str) -> list[list[int]]:
    """Return the printed offsets of each partition."""
    found: list[list[int]] = [[], []]
    for line in ottla("consume", topic, *words, "-f", "%p %o\n").stdout.splitlines():
        partition, offset = map(int, line.split())
        found[partition].append(offset)
    return found


def test_until_ends_each_partition(ottla: Run, orders: str) -> None:
    assert offsets(ottla, orders, "--until", "3") == [[0, 1, 2], [0, 1, 2]]
    assert offsets(ottla, orders, "-o", "8", "--until", "12", "-e") == [[8, 9], [8, 9, 10, 11]]
    assert offsets(ottla, orders, "-o", f"@{TIME_MS + 8}", "--until", f"@{TIME_MS + 11}") == [
        [8, 9],
        [8, 9, 10],
    ]
    assert offsets(ottla, orders, "-o", "-2", "--until", "@1s") == [[8, 9], [18, 19]]
    assert offsets(ottla, orders, "-o", "15", "--until", f"@{TIME_MS}") == [[], []]
    assert offsets(ottla, orders, "-p", "1", "-o", "17", "--until", "@2100-01-01T00:00:00Z", "-e") == (
        [[], [17, 18, 19]]
    )


def test_a_group_commits_no_record_behind_the_end(ottla: Run, orders: str) -> None:
    group = f"g-{orders}"
    assert offsets(ottla, orders, "-g", group, "--until", "5") == [[0, 1, 2, 3, 4]] * 2
    found = offsets(ottla, orders, "-g", group, "-e", "--where", "$.n = 7", "-c", "1")
    assert sorted(found) == [[], [7]]
    # One partition continues after the match, and nothing of the other one was looked at.
    left = offsets(ottla, orders, "-g", group, "--until", "10")
    assert left == [[8, 9] if matched else [5, 6, 7, 8, 9] for matched in found]


async def test_a_time_to_come_is_awaited(bootstrap: str, topic: Callable[..., str]) -> None:
    name = topic()
    async with Producer(bootstrap_servers=bootstrap) as producer:
        until_ms = int(time.time() * 1000) + 4_000
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "ottla", "consume", name, "-b", bootstrap, "--until", f"@{until_ms}"),
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            await producer.send_and_wait(name, b"before", partition=0)
            await producer.send_and_wait(name, b"late", partition=1, timestamp_ms=until_ms)
            await producer.send_and_wait(name, b"behind", partition=1)
            assert process.stdout is not None
            async with asyncio.timeout(60):
                assert await process.stdout.readline() == b"before\n"
                assert await process.stdout.read() == b""
                assert await process.wait() == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    assert time.time() * 1000 >= until_ms


def test_filters_choose_records(ottla: Run, orders: str) -> None:
    assert offsets(ottla, orders, "-e", "--key", "^k1") == [[1], [1, *range(10, 20)]]
    assert offsets(ottla, orders, "-e", "--grep", '"n": 7,') == [[7], [7]]
    assert offsets(ottla, orders, "-e", "--header", "odd", "-p", "0") == [[1, 3, 5, 7, 9], []]
    assert offsets(ottla, orders, "-e", "--header", "origin=^shop$", "--where", "$.n > 15") == [[], [16, 18]]
    assert offsets(ottla, orders, "-e", "--where", "$.customer = c-2", "--where", "$.n <= 5") == [
        [2, 5],
        [2, 5],
    ]
    assert offsets(ottla, orders, "-c", "2", "-p", "1", "--where", "$.customer ~ -1$") == [[], [1, 4]]
    assert offsets(ottla, orders, "-e", "--grep", "nothing") == [[], []]


async def test_the_end_of_a_busy_topic_is_that_of_the_beginning(
    bootstrap: str, ottla: Run, topic: Callable[..., str]
) -> None:
    name, ended = topic(), asyncio.Event()

    async def produce(producer: Producer) -> None:
        while not ended.is_set():
            for _ in range(50):
                await producer.send(name, b"v", partition=0)
            await producer.flush()

    async with Producer(bootstrap_servers=bootstrap) as producer:
        await producer.send_and_wait(name, b"v", partition=0)
        busy = asyncio.create_task(produce(producer))
        try:
            assert await asyncio.to_thread(ottla, "consume", name, "-e", "-o", "-1")
        finally:
            ended.set()
            await busy
