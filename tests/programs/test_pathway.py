"""Pathway counts words: the program and brokers are killed, and the last count of each word is that of plain Python.

Without a licence Pathway promises results at least once: after a kill it repeats some of its changes.
"""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import RunningCluster
from tests.programs.environments import Environment
from tests.programs.kills import kill_and_start
from tests.programs.topics import Input, Output, Sent, create_topics

pytestmark = pytest.mark.timeout(900)
PATHWAY = Environment("pathway")
PARTITIONS = 3


def words(seed: int) -> Iterator[Sent]:
    chance = random.Random(seed)
    for _ in itertools.count():
        yield Sent("words", None, f"word{chance.randrange(20)}")


def last_counts(output: Output) -> Counter[str]:
    """Return the newest count of each word; all of a word's changes are in one partition."""
    found: Counter[str] = Counter()
    for value in itertools.chain.from_iterable(output.values):
        change = json.loads(value)
        if change["diff"] == 1:
            found[change["word"]] = change["count"]
    return found


def test_counts_through_kills(cluster: RunningCluster, tmp_path: Path) -> None:
    create_topics(cluster, "words", "counts", partitions=PARTITIONS)
    output = Output(cluster.bootstrap, "counts", PARTITIONS)
    arguments = cluster.bootstrap, str(tmp_path / "state")
    with PATHWAY.program("pathway_counts.py", tmp_path / "counts.log", *arguments) as program:
        with Input(cluster.bootstrap, words(seed=3)) as given:
            output.wait_for(60, 120)
            for turn in range(4):
                kill_and_start(cluster, program, turn, output)
        wanted = Counter(message.value for message in given.sent)
        output.wait_until(lambda: last_counts(output) == wanted, "every word", 120)
