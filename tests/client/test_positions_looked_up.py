"""Offset lookups at leaders when brokers fail or omit a partition."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from ottla.client.connections.cluster import Cluster
from ottla.client.consuming.fetcher import Fetcher
from ottla.client.failures import ClientError, RequestTimedOut
from ottla.protocol.messages.list_offsets import (
    EARLIEST,
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tests.client.test_fetcher import OPTIONS, PLACE, known


class Asked(Cluster):
    """A cluster that answers at once, except for the first request about topics, which fails."""

    def __init__(self, answer: ListOffsetsResponse) -> None:
        super().__init__("localhost:1")
        self._answer = answer
        self.refreshed = 0

    async def refresh(self, topics: Iterable[str] | None = None) -> None:
        self.refreshed += 1
        if self.refreshed == 1:
            raise RequestTimedOut("broker 1 did not answer Metadata in time")
        self.metadata.update(known())

    async def ask(self, broker_id: int, message: Any, **_: Any) -> Any:
        await asyncio.sleep(0)
        return self._answer


AT_SEVEN = ListOffsetsResponse(
    topics=[
        ListOffsetsTopicResponse(
            name=PLACE.topic, partitions=[ListOffsetsPartitionResponse(partition_index=0, offset=7)]
        )
    ]
)


async def test_a_partition_that_a_broker_leaves_out_of_its_answer_is_told_of() -> None:
    """The partition was requested again at once, and for ever: the deadline was only checked after a failure."""
    cluster = Asked(ListOffsetsResponse())
    cluster.metadata.update(known())
    async with asyncio.timeout(25):
        with pytest.raises(ClientError, match="left orders-0 out of its answer"):
            await Fetcher(cluster, OPTIONS).list_offsets({PLACE: EARLIEST})


async def test_offsets_are_asked_for_again_where_the_first_question_about_a_topic_fails() -> None:
    """The caller got the error of a restarted broker, though another one would have answered."""
    async with asyncio.timeout(25):
        found = await Fetcher(Asked(AT_SEVEN), OPTIONS).list_offsets({PLACE: EARLIEST})
    assert found[PLACE][0] == 7


async def test_reads_do_not_fail_where_the_first_question_about_a_topic_does() -> None:
    fetcher = Fetcher(Asked(AT_SEVEN), OPTIONS)
    fetcher.assign([PLACE])
    fetcher.assigned[PLACE].look_up(EARLIEST)
    fetcher.start()
    try:
        async with asyncio.timeout(25):
            while fetcher.assigned[PLACE].position != 7:
                fetcher.raise_failure()
                await asyncio.sleep(0)
    finally:
        await fetcher.stop()
