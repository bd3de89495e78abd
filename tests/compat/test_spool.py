"""A spool delivers each record once and in order, even if the program or the broker dies."""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path

from benchmarks.clusters import Cluster
from ottla import Admin, NewTopic, Producer
from tests.client.spool import spooling_child
from tests.compat.conftest import Topics
from tests.compat.reading import DEADLINE_S, eventually, read_to_the_end


async def test_a_program_is_killed_again_and_again(bootstrap: str, topics: Topics, tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    topic, promised = await topics(), 0
    for _ in range(4):
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, spooling_child.__file__, bootstrap, str(tmp_path), topic, str(promised)),
            stdout=asyncio.subprocess.PIPE,
        )
        assert child.stdout is not None
        try:
            line = await child.stdout.readline()
            await asyncio.sleep(chance.random())
        finally:
            child.kill()
        line += await child.stdout.read()
        await child.wait()
        async with Producer(bootstrap_servers=bootstrap, spool_dir=tmp_path) as producer:
            async with asyncio.timeout(DEADLINE_S):
                await producer.flush()
        values = await read_to_the_end(bootstrap, topic, isolation="read_committed")
        assert values == [b"%d" % number for number in range(len(values))]
        assert len(values) > int(line[: line.rindex(b"\n")].splitlines()[-1])
        promised = len(values)


async def test_kafka_is_away_at_the_start_and_dies_in_the_middle(kafka: Cluster, tmp_path: Path) -> None:
    topic = f"spool-{tmp_path.parent.name}"
    async with Admin(bootstrap_servers=kafka.bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, 1)])
    await asyncio.to_thread(kafka.kill, kafka.brokers[0])
    try:
        async with Producer(
            bootstrap_servers=kafka.bootstrap, spool_dir=tmp_path, retry_backoff_max_ms=50
        ) as left:
            for number in range(1_000):
                await left.send(topic, b"%d" % number)
            await eventually(lambda: left.spooled.error is not None, "nobody is there")
        assert left.spooled.records == 1_000
    finally:
        await asyncio.to_thread(kafka.restart, kafka.brokers[0])
    async with Producer(bootstrap_servers=kafka.bootstrap, spool_dir=tmp_path) as producer:

        async def send() -> None:
            for number in range(1_000, 10_000):
                await producer.send(topic, b"%d" % number)
                if number % 100 == 0:
                    await asyncio.sleep(0.01)

        sending = asyncio.create_task(send())
        await eventually(lambda: producer.spooled.records < 1_000, "what was left is delivered")
        await asyncio.to_thread(kafka.kill, kafka.brokers[0])
        await asyncio.to_thread(kafka.restart, kafka.brokers[0])
        await sending
        async with asyncio.timeout(60):
            await producer.flush()
    values = await read_to_the_end(kafka.bootstrap, topic, isolation="read_committed")
    assert values == [b"%d" % number for number in range(10_000)]
