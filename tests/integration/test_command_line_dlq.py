"""`ottla dlq` against the shared cluster: letters are listed, shown, and sent back, each once."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import uuid
from collections import Counter
from collections.abc import Callable
from threading import Thread

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ottla import Consumer, Producer
from ottla.client.dead_letters.replay import LetterReplay, ReplayRequest
from ottla.client.failures import ProducerFenced
from ottla.client.records import ConsumerRecord
from ottla.client.worker.letters import letter_headers
from tests.commands import run_ottla

pytestmark = pytest.mark.cluster

Run = Callable[..., subprocess.CompletedProcess[str]]
LETTERS = 12
"""Letters of the fixture: half of them with the error TimeoutError, and half with ValueError."""


@pytest.fixture
def ottla(bootstrap: str) -> Run:
    """Run a command with an exit code of 0, or of `code`."""

    def run(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = run_ottla(*words, environ={**os.environ, "OTTLA_BOOTSTRAP": bootstrap})
        assert done.returncode == code, (words, done.stdout, done.stderr)
        return done

    return run


@pytest.fixture
def topic(admin: AdminClient, bootstrap: str) -> str:
    """Return a topic of two partitions, with letters in the topic of its name and `.dlq`."""
    name = f"orders-{uuid.uuid4().hex[:8]}"
    created = admin.create_topics([NewTopic(name, 2, 1), NewTopic(f"{name}.dlq", 2, 1)])
    for done in created.values():
        done.result(60)
    asyncio.run(write(bootstrap, name, LETTERS))
    return name


async def write(bootstrap: str, topic: str, count: int) -> None:
    """Write letters to both partitions in turn, in transactions of three, as a worker does."""
    async with Producer(bootstrap_servers=bootstrap, transactional_id=f"worker-{uuid.uuid4()}") as producer:
        for first in range(0, count, 3):
            async with producer.transaction():
                for number in range(first, min(first + 3, count)):
                    record = ConsumerRecord(
                        topic,
                        number % 2,
                        100 + number,
                        0,
                        b"k%d" % number,
                        b"v%d" % number,
                        (("trace", b"\xff"),),
                    )
                    error = TimeoutError("slow\nbank") if number < count // 2 else ValueError(f"no. {number}")
                    await producer.send(
                        f"{topic}.dlq",
                        record.value,
                        record.key,
                        partition=number % 2,
                        headers=letter_headers(record, "billing", error, 3),
                    )


async def found(bootstrap: str, topic: str, count: int) -> list[ConsumerRecord]:
    """Return the committed records of a topic, once there are `count`; then no more come for a moment."""
    records: list[ConsumerRecord] = []
    async with (
        Consumer(
            topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", isolation_level="read_committed"
        ) as reader,
        asyncio.timeout(60),
    ):
        while len(records) < count:
            for some in (await reader.getmany(timeout_ms=100)).values():
                records += some
        for some in (await reader.getmany(timeout_ms=300)).values():
            records += some
    return records


def values(records: list[ConsumerRecord]) -> Counter[bytes]:
    return Counter(record.value for record in records)


def numbers(*some: int) -> Counter[bytes]:
    return Counter(b"v%d" % number for number in some)


def test_letters_are_listed_counted_and_shown(ottla: Run, topic: str) -> None:
    letters = f"{topic}.dlq"
    rows = json.loads(ottla("dlq", "ls", letters, "-o", "json").stdout)
    assert len(rows) == LETTERS
    first = next(row for row in rows if (row["partition"], row["offset"]) == (0, 0))
    assert (first["origin_topic"], first["origin_partition"], first["origin_offset"]) == (topic, 0, 100)
    assert (first["group"], first["attempts"], first["error_type"]) == ("billing", 3, "TimeoutError")
    lines = ottla("dlq", "ls", letters, "--header", "ottla.error.type=Timeout", "-p", "1").stdout.splitlines()
    assert len(lines) == 1 + LETTERS // 4
    assert f"{topic}:1:101\tbilling\t3\tTimeoutError\tslow bank" in lines[1]
    assert len(ottla("dlq", "ls", letters, "-c", "2").stdout.splitlines()) == 3
    assert len(ottla("dlq", "ls", letters, "--since", "1h").stdout.splitlines()) == 1 + LETTERS
    later = ottla("dlq", "ls", letters, "--since", "2100-01-01T00:00:00Z")
    assert (later.stdout.count("\n"), later.stderr) == (1, "There are no such letters.\n")
    summary = json.loads(ottla("dlq", "ls", letters, "--summary", "-o", "json").stdout)
    assert {(row["error_type"], row["letters"]) for row in summary} == {
        ("TimeoutError", 6),
        ("ValueError", 6),
    }

    shown = ottla("dlq", "show", letters, "0", "0").stdout
    for part in (
        f"LETTER   {letters}:0:0",
        f"ORIGIN   {topic}:0:100",
        "slow\nbank",
        "k0",
        "v0",
        "trace",
        "\\xff",
    ):
        assert part in shown
    whole = json.loads(ottla("dlq", "show", letters, "0", "0", "-o", "json").stdout)
    assert (whole["value"], whole["letter"]["error_text"]) == ("v0", "slow\nbank")
    assert "has no record at offset 2" in ottla("dlq", "show", letters, "0", "2", code=1).stderr  # a marker
    assert "has no offset 99999" in ottla("dlq", "show", letters, "0", "99999", code=1).stderr
    assert "partitions 0 to 1, not 7" in ottla("dlq", "show", letters, "7", "0", code=1).stderr
    assert "there is no topic" in ottla("dlq", "ls", f"{letters}x", code=1).stderr


def test_letters_go_back_each_once_over_several_replays(ottla: Run, topic: str, bootstrap: str) -> None:
    letters = f"{topic}.dlq"
    dry = ottla("dlq", "replay", letters, "--dry-run", "-o", "json").stdout
    assert json.loads(dry) == {
        "dry_run": True,
        "letters": LETTERS,
        "sent_before": 0,
        "looked_at": LETTERS,
        "topics": {topic: LETTERS},
    }
    one = ottla("dlq", "replay", letters, "--at", "1:0").stdout
    assert one == f"TOPIC\tLETTERS\tRESULT\n{topic}\t1\tsent\n"
    again = ottla("dlq", "replay", letters, "--at", "1:0")
    assert "no letters to send that were not sent before: --from-start sends all" in again.stderr
    more = ottla("dlq", "replay", letters, "--at", "1:0", "--at", "0:0", "--dry-run")
    assert more.stdout == f"TOPIC\tLETTERS\tRESULT\n{topic}\t1\tto send\n"
    timeouts = ottla("dlq", "replay", letters, "--header", "ottla.error.type=Timeout", "-o", "json").stdout
    assert json.loads(timeouts)["letters"] == LETTERS // 2 - 1
    sent = asyncio.run(found(bootstrap, topic, LETTERS // 2))
    assert values(sent) == numbers(*range(LETTERS // 2))
    for record in sent:
        number = int(record.value[1:])
        assert (record.partition, record.key) == (number % 2, b"k%d" % number)
        name, place = record.headers[1]
        assert (record.headers[0], name) == (("trace", b"\xff"), "ottla.replay.letter")
        assert place is not None
        assert place.startswith(f"{letters}/{number % 2}/".encode())

    ottla("dlq", "replay", letters, "--yes")
    assert values(asyncio.run(found(bootstrap, topic, LETTERS))) == numbers(*range(LETTERS))
    assert json.loads(ottla("dlq", "replay", letters, "-o", "json").stdout)["letters"] == 0
    ottla("dlq", "replay", letters, "--from-start", "--where", "$.none", "--yes")
    ottla("dlq", "replay", letters, "--from-start", "--yes")
    assert values(asyncio.run(found(bootstrap, topic, 2 * LETTERS))) == numbers(
        *range(LETTERS), *range(LETTERS)
    )
    assert len(ottla("dlq", "ls", letters).stdout.splitlines()) == 1 + LETTERS, "a replay removes nothing"


def test_letters_that_are_passed_over_count_as_done(ottla: Run, topic: str) -> None:
    words = ("dlq", "replay", f"{topic}.dlq", "-g", f"g-{topic}", "-o", "json")
    ottla(*words[:-2], "--header", "ottla.error.type=Timeout", "--skip-others")
    assert json.loads(ottla(*words).stdout)["looked_at"] == 0


def test_letters_without_an_origin_need_a_target(ottla: Run, topic: str, bootstrap: str) -> None:
    async def write_a_stranger() -> None:
        async with Producer(bootstrap_servers=bootstrap) as producer:
            await producer.send_and_wait(f"{topic}.dlq", b"v99", partition=0)

    asyncio.run(write_a_stranger())
    refused = ottla("dlq", "replay", f"{topic}.dlq", code=1).stderr
    assert "1 of 13 letters tell no topic of origin" in refused
    assert "there is no topic 'none'" in ottla("dlq", "replay", f"{topic}.dlq", "--to", "none", code=1).stderr
    ottla("dlq", "replay", f"{topic}.dlq", "--to", topic, "--header", "ottla.error.type=Value")
    assert len(asyncio.run(found(bootstrap, topic, LETTERS // 2))) == LETTERS // 2


async def test_a_replay_that_is_cancelled_anywhere_goes_on_exactly(bootstrap: str, topic: str) -> None:
    """Runs are cancelled a little later each time, until one gets to the end."""
    connection = {"bootstrap_servers": bootstrap}
    replay = LetterReplay(ReplayRequest(f"{topic}.dlq"), connection)
    await write(bootstrap, topic, 60)
    plan = await replay.plan()
    assert plan.counts.chosen == 60 + LETTERS
    patience_s = 0.05
    while True:
        running = asyncio.create_task(replay.run(plan))
        done, _ = await asyncio.wait([running], timeout=patience_s)
        if done:
            break
        running.cancel()
        await asyncio.wait([running])
        patience_s *= 1.3
    running.result()
    sent = values(await found(bootstrap, topic, 60 + LETTERS))
    assert sent == numbers(*range(60)) + numbers(*range(LETTERS))


async def test_a_cluster_without_transactions_gets_letters_before_their_offsets(
    bootstrap: str, topic: str
) -> None:
    connection = {"bootstrap_servers": bootstrap}
    replay = LetterReplay(
        ReplayRequest(f"{topic}.dlq", chooses=lambda record: record.partition == 1), connection
    )
    replay.is_transactional = False
    await replay.run(await replay.plan())
    rest = LetterReplay(ReplayRequest(f"{topic}.dlq"), connection)
    await rest.run(await rest.plan())
    assert values(await found(bootstrap, topic, LETTERS)) == numbers(*range(LETTERS))


async def test_a_second_replay_fences_the_first(bootstrap: str, topic: str) -> None:
    connection = {"bootstrap_servers": bootstrap}
    second = LetterReplay(ReplayRequest(f"{topic}.dlq"), connection)
    plan = await second.plan()
    others: list[Thread] = []

    def chooses(record: ConsumerRecord) -> bool:
        """Choose all letters, and let the second replay run as a whole before the first letter is sent."""
        if is_sending and not others:
            others.append(Thread(target=lambda: asyncio.run(second.run(plan))))
            others[0].start()
            others[0].join(60)
        return True

    is_sending = False
    first = LetterReplay(ReplayRequest(f"{topic}.dlq", chooses=chooses), connection)
    plan = await first.plan()
    is_sending = True
    with pytest.raises(ProducerFenced):
        await first.run(plan)
    assert values(await found(bootstrap, topic, LETTERS)) == numbers(*range(LETTERS))
