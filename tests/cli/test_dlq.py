"""`ottla dlq`: the arguments, and a cluster without topics or transactions. No real cluster."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

import pytest

from ottla.cli.arguments.guesses import action_meant
from ottla.cli.commands.dlq import parser
from ottla.cli.main import main
from tests.client.fake_cluster import FakeCluster, Fault
from tests.commands import run_ottla


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("dlq", "an action is missing; there are ls, show, replay"),
        ("dlq list t", "there is no action 'list'; did you mean 'ls'?"),
        ("dlq redrive t", "there is no action 'redrive'; did you mean 'replay'?"),
        ("dlt t", "did you mean 'ottla dlq ls'?"),
        ("dlq ls", "TOPIC"),
        ("dlq show t 0", "OFFSET"),
        ("dlq show t 0 -1", "a letter has a partition and an offset from 0 on"),
        ("dlq show t x 1", "PARTITION"),
        ("dlq ls t -c 0", "-c takes a count of letters, not 0"),
        ("dlq ls t -c 1 --summary", "-c is for a list of letters"),
        ("dlq ls t --since soon", "'soon' is no time"),
        ("dlq ls t --header =x", "--header: a filter of headers is NAME or NAME=PATTERN"),
        ("dlq ls t --where x", "--where: a JSON path begins with $"),
        ("dlq replay t --at 17", "--at: a place is PARTITION:OFFSET,... such as 0:17,20-25, not '17'"),
        ("dlq replay t --at 0:1 -p 0", "--at names partitions itself: leave -p out"),
    ],
)
def test_a_wrong_line_says_what_is_allowed(
    line: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line.split()) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_other_words_are_understood() -> None:
    actions = parser("dlq").actions
    assert [action_meant(word, actions) for word in ("list", "describe", "retry", "resend", "view")] == [
        "ls",
        "show",
        "replay",
        "replay",
        "show",
    ]


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster("orders.dlq", 1, lambda: Fault.NONE)
    await cluster.start(1)
    yield cluster
    await cluster.stop()


@pytest.mark.parametrize("action", [["ls"], ["replay"], ["show"]])
async def test_a_topic_that_does_not_exist_is_not_created(cluster: FakeCluster, action: list[str]) -> None:
    place = ["0", "1"] if action == ["show"] else []
    environ = {**os.environ, "OTTLA_BOOTSTRAP": cluster.bootstrap}
    done = await asyncio.to_thread(run_ottla, "dlq", *action, "order.dlq", *place, environ=environ)
    assert done.returncode == 1
    assert "there is no topic 'order.dlq'" in done.stderr
