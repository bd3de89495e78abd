"""`ottla txn` and `ottla group`: while one coordinator loads, and when a transaction is not that of the question."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from ottla.protocol.messages.transaction_descriptions import DescribeTransactionsRequest
from ottla.protocol.wire.schema import Message, Request
from tests.client.test_transaction_admin import Known, Transactional
from tests.commands import run_ottla

Run = Callable[..., Awaitable[tuple[int, str, str]]]


class Loading(Transactional):
    """Broker 1 loads. Each of the others has a group, and broker 2 a transactional id."""

    def __init__(self) -> None:
        super().__init__()
        self.ids = {"a": Known((1,), broker=2), "b": Known((2,), broker=1)}
        self.loading = {1}
        self.served += [ListGroupsRequest]
        self.described: Callable[[], None] = lambda: None
        """Called after each answer about a transactional id."""

    def answer_other(self, broker: int, request: Request[Message], version: int) -> Message | None:
        if not isinstance(request, ListGroupsRequest):
            answer = super().answer_other(broker, request, version)
            if isinstance(request, DescribeTransactionsRequest):
                self.described()
            return answer
        if broker in self.loading:
            return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return ListGroupsResponse(groups=[ListedGroup(group_id=f"g{broker}", group_state="Empty")])


@pytest.fixture
async def cluster() -> AsyncIterator[Loading]:
    cluster = Loading()
    await cluster.start(3)
    yield cluster
    await cluster.stop()


@pytest.fixture
def ottla(cluster: Loading) -> Run:
    environ = {**os.environ, "OTTLA_BOOTSTRAP": cluster.bootstrap}

    async def run(*words: str) -> tuple[int, str, str]:
        done = await asyncio.to_thread(run_ottla, *words, environ=environ)
        return done.returncode, done.stdout, done.stderr

    return run


async def test_ids_of_the_others_are_listed_and_described(ottla: Run) -> None:
    code, out, err = await ottla("txn", "list", "-o", "json")
    assert [entry["transactional_id"] for entry in json.loads(out)] == ["a"]
    assert code == 1
    assert "broker 1: " in err
    assert "COORDINATOR_LOAD_IN_PROGRESS" in err
    code, out, err = await ottla("txn", "describe", "--summary")
    assert (code, "a\t" in out, "broker 1: " in err) == (1, True, True)


async def test_nothing_is_aborted_while_some_ids_are_not_known(ottla: Run, cluster: Loading) -> None:
    code, out, err = await ottla("txn", "abort", "-r", ".*", "--yes")
    assert (code, out, "broker 1: " in err) == (1, "", True)
    assert cluster.aborted == []


async def test_a_transaction_that_began_after_the_question_is_not_aborted(
    ottla: Run, cluster: Loading
) -> None:
    cluster.described = lambda: cluster.ids.update(a=Known((9,), broker=2))
    code, out, err = await ottla("txn", "abort", "a", "--yes")
    assert (code, out) == (1, "")
    assert "the transaction of 'a' has ended, and another one is open" in err
    assert cluster.aborted == []
    code, out, err = await ottla("txn", "abort", "a", "--yes")
    assert (code, cluster.aborted) == (0, ["a"])


async def test_groups_of_the_others_are_listed(ottla: Run, cluster: Loading) -> None:
    code, out, err = await ottla("group", "list", "-o", "json")
    assert [entry["group"] for entry in json.loads(out)] == ["g0", "g2"]
    assert (code, "broker 1: " in err) == (1, True)
    code, out, err = await ottla("group", "list", "g7")
    assert (code, out, "broker 1: " in err) == (1, "", True), "it may be one of broker 1"
    cluster.loading.clear()
    code, out, err = await ottla("group", "list", "-o", "json")
    assert [entry["group"] for entry in json.loads(out)] == ["g0", "g1", "g2"]
    assert (code, err) == (0, "")
