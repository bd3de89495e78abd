"""The producer of a replay, with a cluster that has no transactions."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack

import pytest

from ottla.client.dead_letters.replay import LetterReplay, ReplayRequest, group_of_replay
from tests.client.fake_cluster import FakeCluster, Fault


async def test_a_cluster_without_transactions_gets_another_producer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = FakeCluster("orders", 1, lambda: Fault.NONE)
    await cluster.start(1)
    try:
        replay = LetterReplay(ReplayRequest("orders.dlq"), {"bootstrap_servers": cluster.bootstrap})
        with caplog.at_level(logging.WARNING):
            async with AsyncExitStack() as stack:
                producer = await replay._producer(stack)
                await producer.send_and_wait("orders", b"value")
        assert not replay.is_transactional
        assert "the cluster has no transactions: a failure may send some letters twice" in caplog.text
        assert cluster.logs[0].values == [b"value"]
    finally:
        await cluster.stop()


def test_the_group_names_the_replay() -> None:
    assert group_of_replay("orders.dlq") == "ottla-dlq-replay-orders.dlq"
    assert group_of_replay("orders.dlq", "tests") == "ottla-dlq-replay-orders.dlq-to-tests"
