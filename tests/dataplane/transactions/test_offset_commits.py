"""TxnOffsetCommit over sockets, to a broker with real logs: permitted clients, the time from which it counts, and its
waits.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from ottla.client.connections.connection import BrokerAddress, Connection
from ottla.client.connections.opening import connect
from ottla.dataplane.cluster.internal_topics import OFFSETS_TOPIC
from ottla.dataplane.coordinated_log.key_hash import partition_for
from ottla.dataplane.handlers.api_versions import ApiVersionsHandlers
from ottla.dataplane.handlers.group_offsets import ASK_AGAIN, GroupOffsetHandlers
from ottla.dataplane.handlers.txn_offset_commit import TxnOffsetCommitHandlers
from ottla.dataplane.server.handler import HandlerTable
from ottla.dataplane.server.server import Server
from ottla.dataplane.transactions import pending_writes
from ottla.protocol.cluster.transaction_table import Phase
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.protocol.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.metadata_quorum.state.harness import assigned
from tests.metadata_quorum.state.transactional import Identity

from .broker_beside_a_quorum import Beside, beside_a_quorum

GROUP = "g"
ELSEWHERE = "somewhere else"
METADATA_MAX = 4096
VERSIONS = (0, 3, 4, 5, 6)


class Served(NamedTuple):
    """A broker and client.

    `__consumer_offsets` has two partitions: broker 1 leads the one of `GROUP` alone, the other is on broker 2.
    """

    broker: Beside
    client: Connection

    async def commit(
        self,
        who: Identity,
        offset: int,
        *,
        version: int,
        name: str = "x",
        group: str = GROUP,
        index: int = 0,
        topic: str = "solo",
        metadata: str | None = None,
        generation: int = -1,
    ) -> int:
        """Commit, and return the error code."""
        image = self.broker.image
        topic_id = image.topics[topic].id if topic in image.topics else bytes(range(16))
        asked = TxnOffsetCommitRequest(
            transactional_id=name,
            group_id=group,
            producer_id=who[0],
            producer_epoch=who[1],
            generation_id_or_member_epoch=generation,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=topic,
                    topic_id=topic_id,
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=index, committed_offset=offset, committed_metadata=metadata
                        )
                    ],
                )
            ],
        )
        answer = await self.client.request(asked, version=version)
        assert answer.topics[0].topic_id == (topic_id if version >= 6 else bytes(16))
        return answer.topics[0].partitions[0].error_code

    async def fetched(self, *, stable: bool = False) -> tuple[int, int]:
        """Return error code and offset of solo-0."""
        asked = OffsetFetchRequestGroup(
            group_id=GROUP, topics=[OffsetFetchRequestTopics(name="solo", partition_indexes=[0])]
        )
        answer = await self.client.request(
            OffsetFetchRequest(groups=[asked], require_stable=stable), version=9
        )
        found = answer.groups[0].topics[0].partitions[0]
        return found.error_code, found.committed_offset

    def begin(self, *, adds: bool = True) -> Identity:
        """Return a producer. Another broker has answered AddOffsetsToTxn, and the feed has not arrived yet."""
        who = self.broker.quorum.begin()
        if adds:
            self.broker.quorum.add(who, self.place())
        return who

    def place(self) -> set[tuple[bytes, int]]:
        return self.broker.quorum.places(partition_for(GROUP, 2), topic=OFFSETS_TOPIC)

    async def end(self, who: Identity, *, commits: bool = True) -> None:
        """End the transaction, and return when EndTxn would be answered."""
        number = self.broker.quorum.end(who, commits=commits).number
        self.broker.catch_up()
        await self.broker.completion_waits.over("x", number, 10)


@contextlib.asynccontextmanager
async def served(directory: Path) -> AsyncIterator[Served]:
    async with beside_a_quorum(directory) as broker:
        replicas = [[2], [2]]
        replicas[partition_for(GROUP, 2)] = [1]
        broker.quorum.create(assigned(OFFSETS_TOPIC, *replicas))
        broker.catch_up()
        assert partition_for(ELSEWHERE, 2) != partition_for(GROUP, 2)
        table = HandlerTable(
            GroupOffsetHandlers(broker.groups, lambda: broker.image, lambda: 0, METADATA_MAX),
            TxnOffsetCommitHandlers(
                broker.groups,
                broker.replicas,
                broker.pending_writes,
                lambda: broker.image,
                lambda: 0,
                METADATA_MAX,
            ),
        )
        table.add(ApiVersionsHandlers(table, SimpleNamespace(image=broker.image), 1))  # type: ignore[arg-type]
        server = Server(table)
        port = server.listen("TEST", "127.0.0.1", 0).port
        server.start()
        async with asyncio.timeout(60):
            while broker.groups.loading:
                await asyncio.sleep(0.001)
        client = await connect(BrokerAddress(1, "127.0.0.1", port))
        try:
            yield Served(broker, client)
        finally:
            client.close()
            server.close()


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("version", VERSIONS)
async def test_offsets_count_when_whoever_asked_for_the_end_is_told(
    tmp_path: Path, *, version: int, commits: bool
) -> None:
    async with served(tmp_path) as it:
        who = it.begin()
        it.broker.catch_up()
        assert await it.commit(who, 7, version=version) == ErrorCode.NONE
        assert await it.fetched() == (ErrorCode.NONE, -1)
        assert await it.fetched(stable=True) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, ASK_AGAIN)
        await it.end(who, commits=commits)
        assert await it.fetched(stable=True) == (ErrorCode.NONE, 7 if commits else -1)


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_commit_waits_for_the_feed(tmp_path: Path, version: int) -> None:
    async with served(tmp_path) as it:
        who = it.begin()
        committing = asyncio.create_task(it.commit(who, 7, version=version))
        while not it.broker.pending_writes.waiting:
            await asyncio.sleep(0)
        it.broker.catch_up()
        assert await committing == ErrorCode.NONE
        await it.end(who)
        assert await it.fetched() == (ErrorCode.NONE, 7)


@pytest.mark.parametrize("version", [5, 6])
async def test_the_request_makes_the_partition_part_of_the_transaction(tmp_path: Path, version: int) -> None:
    async with served(tmp_path) as it:
        who = it.begin(adds=False)
        assert await it.commit(who, 7, version=version) == ErrorCode.NONE
        assert {place for _, place in it.broker.quorum.state().outstanding} == it.place()


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (0, ErrorCode.INVALID_TXN_STATE),
        (3, ErrorCode.INVALID_TXN_STATE),
        (4, ErrorCode.TRANSACTION_ABORTABLE),
    ],
)
async def test_what_was_not_added_before_is_refused(tmp_path: Path, version: int, code: ErrorCode) -> None:
    async with served(tmp_path) as it:
        who = it.begin(adds=False)
        assert await it.commit(who, 7, version=version) == code
        assert it.broker.quorum.state().phase is Phase.EMPTY
        partition = it.broker.partition(OFFSETS_TOPIC, partition_for(GROUP, 2))
        assert partition.log.log_end_offset == 0


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_fenced_producer_commits_nothing(tmp_path: Path, version: int) -> None:
    async with served(tmp_path) as it:
        old = it.begin(adds=False)
        it.begin()
        if version != 5:
            it.broker.catch_up()
        assert await it.commit(old, 7, version=version) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await it.fetched(stable=True) == (ErrorCode.NONE, -1)


async def test_a_producer_id_belongs_to_one_transactional_id(tmp_path: Path) -> None:
    async with served(tmp_path) as it:
        who = it.begin()
        it.broker.catch_up()
        assert await it.commit(who, 7, version=5, name="y") == ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize(
    ("version", "code"), [(3, ErrorCode.ILLEGAL_GENERATION), (6, ErrorCode.GROUP_ID_NOT_FOUND)]
)
async def test_whoever_is_not_in_the_group_commits_nothing_for_it(
    tmp_path: Path, version: int, code: ErrorCode
) -> None:
    async with served(tmp_path) as it:
        who = it.begin()
        it.broker.catch_up()
        assert await it.commit(who, 7, version=version, generation=4) == code
        assert await it.fetched(stable=True) == (ErrorCode.NONE, -1)


async def test_partitions_that_cannot_have_offsets_are_told_so(tmp_path: Path) -> None:
    async with served(tmp_path) as it:
        who = it.begin()
        it.broker.catch_up()
        assert await it.commit(who, 7, version=5, index=9) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await it.commit(who, 7, version=5, topic="no") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await it.commit(who, 7, version=6, topic="no") == ErrorCode.UNKNOWN_TOPIC_ID
        long = "m" * (METADATA_MAX + 1)
        assert await it.commit(who, 7, version=5, metadata=long) == ErrorCode.OFFSET_METADATA_TOO_LARGE


@pytest.mark.parametrize("version", VERSIONS)
async def test_another_broker_is_asked_by_whoever_is_told_so(tmp_path: Path, version: int) -> None:
    async with served(tmp_path) as it:
        who = it.begin()
        it.broker.catch_up()
        assert await it.commit(who, 7, version=version, group=ELSEWHERE) == ErrorCode.NOT_COORDINATOR
        assert await it.commit(who, 7, version=version, group="") == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (0, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (3, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (5, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ],
)
async def test_without_a_quorum_clients_ask_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, code: ErrorCode
) -> None:
    monkeypatch.setattr(pending_writes, "WAIT_MAX_S", 0.2)
    async with served(tmp_path) as it:
        who = it.begin()
        it.broker.quorum.answers = False
        assert await it.commit(who, 7, version=version) == code
        it.broker.quorum.answers = True
        it.broker.catch_up()
        assert await it.commit(who, 7, version=version) == ErrorCode.NONE


async def test_what_waits_when_the_partition_moves_is_written_by_nobody(tmp_path: Path) -> None:
    async with served(tmp_path) as it:
        who = it.begin()
        committing = asyncio.create_task(it.commit(who, 7, version=3))
        while not it.broker.pending_writes.waiting:
            await asyncio.sleep(0)
        it.broker.quorum.fence(1)
        it.broker.catch_up()
        assert await committing == ErrorCode.NOT_COORDINATOR


async def test_a_commit_of_the_transaction_before_does_not_enter_the_next(tmp_path: Path) -> None:
    """Version 5: clients take up the next epoch with each transaction."""
    async with served(tmp_path) as it:
        who = it.begin()
        it.broker.catch_up()
        assert await it.commit(who, 7, version=5) == ErrorCode.NONE
        await it.end(who)
        successor = (who[0], who[1] + 1)
        assert await it.commit(successor, 9, version=5) == ErrorCode.NONE
        assert await it.commit(who, 8, version=5) == ErrorCode.INVALID_PRODUCER_EPOCH
        await it.end(successor)
        assert await it.fetched(stable=True) == (ErrorCode.NONE, 9)
