"""`ottla txn` and `ottla group` while the coordinator of one broker cannot list what it has."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from ottla.protocol.schema import Message, Request
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

    def answer_other(self, broker: int, request: Request[Message], version: int) -> Message | None:
        if not isinstance(request, ListGroupsRequest):
            return super().answer_other(broker, request, version)
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
    assert [one["transactional_id"] for one in json.loads(out)] == ["a"]
    assert code == 1
    assert "broker 1: " in err
    assert "COORDINATOR_LOAD_IN_PROGRESS" in err
    code, out, err = await ottla("txn", "describe", "--summary")
    assert (code, "a\t" in out, "broker 1: " in err) == (1, True, True)


async def test_nothing_is_aborted_while_some_ids_are_not_known(ottla: Run, cluster: Loading) -> None:
    code, out, err = await ottla("txn", "abort", "-r", ".*", "--yes")
    assert (code, out, "broker 1: " in err) == (1, "", True)
    assert cluster.aborted == []


async def test_groups_of_the_others_are_listed(ottla: Run, cluster: Loading) -> None:
    code, out, err = await ottla("group", "list", "-o", "json")
    assert [one["group"] for one in json.loads(out)] == ["g0", "g2"]
    assert (code, "broker 1: " in err) == (1, True)
    code, out, err = await ottla("group", "list", "g7")
    assert (code, out, "broker 1: " in err) == (1, "", True), "it may be one of broker 1"
    cluster.loading.clear()
    code, out, err = await ottla("group", "list", "-o", "json")
    assert [one["group"] for one in json.loads(out)] == ["g0", "g1", "g2"]
    assert (code, err) == (0, "")
