"""Workers that are killed at the awaits of their commit path: nothing is lost, and transactions count exactly once.

`OTTLA_ALL_AWAITS=1` kills at each of them, in place of some that are spread over a run.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from ottla import Consumer
from ottla.testing import LocalCluster
from tests.client.killed_at_awaits import KEYS, RECORDS, is_rejected
from tests.client.worker.notes import Notes

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[3]
PROGRAM = "tests.client.killed_at_awaits"
CHOSEN = "all" if os.environ.get("OTTLA_ALL_AWAITS") else "9"
Mode = Literal["at-least-once", "transactional"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as running:
        yield running


async def values(cluster: LocalCluster, topics: list[str]) -> dict[str, dict[bytes, list[int]]]:
    """Return the committed values of each topic, by key."""
    found: dict[str, dict[bytes, list[int]]] = {topic: defaultdict(list) for topic in topics}
    async with (
        Consumer(
            *topics,
            bootstrap_servers=cluster.bootstrap_servers,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            fetch_max_wait_ms=50,
        ) as reader,
        asyncio.timeout(60),
    ):
        for partition, end in (await reader.end_offsets(reader.assignment())).items():
            while await reader.position(partition) < end:
                for records in (await reader.getmany(partition, timeout_ms=100)).values():
                    for record in records:
                        found[record.topic][record.key].append(int(record.value))
    return found


def expected(*, rejected: bool) -> dict[bytes, list[int]]:
    """Return the numbers of each key whose record becomes a letter, or does not."""
    numbers: dict[bytes, list[int]] = defaultdict(list)
    for number in range(RECORDS):
        if is_rejected(number) is rejected:
            numbers[b"%d" % (number % KEYS)].append(number)
    return numbers


@pytest.mark.timeout(1_800 if CHOSEN == "all" else 120)
@pytest.mark.parametrize("mode", ["at-least-once", "transactional"])
def test_a_worker_may_die_at_each_await_of_its_commit_path(
    cluster: LocalCluster, tmp_path: Path, mode: Mode
) -> None:
    command = [sys.executable, "-m", PROGRAM, cluster.bootstrap_servers, str(tmp_path), mode, CHOSEN]
    played = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    topics, ends = played[::2], played[1::2]
    print(mode, f"{ends.count('killed')} kills")
    assert ends.count("killed") >= 5
    outputs = asyncio.run(values(cluster, [f"{topic}.out" for topic in topics]))
    letters = asyncio.run(values(cluster, [f"{topic}.dlq" for topic in topics]))
    for topic in topics:
        notes = Notes(tmp_path / f"{topic}-1.notes", tmp_path / f"{topic}-2.notes")
        notes.check_order()
        found, given_up = outputs[f"{topic}.out"], letters[f"{topic}.dlq"]
        if mode == "at-least-once":  # Repetitions are allowed, and losses are not.
            assert {*notes.ended} == {*range(RECORDS)}, topic
            found, given_up = (
                {key: [*dict.fromkeys(of)] for key, of in each.items()} for each in (found, given_up)
            )
        assert found == expected(rejected=False), topic
        assert given_up == expected(rejected=True), topic
