"""Producers commit their groups' offsets at random, while the feed lags, the quorum falls silent and the broker is
elected again.

A client that is answered finds the new offsets, or the earlier ones, and never a mix (rule T14).
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from ottla.dataplane.cluster.internal_topics import OFFSETS_TOPIC
from ottla.dataplane.handlers.txn_offset_commit import TxnOffsetCommitHandlers
from ottla.dataplane.security.authorization.access import EVERYTHING
from ottla.dataplane.server.handler import ClientRequest
from ottla.dataplane.transactions import markers, pending_writes
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from tests.metadata_quorum.state.harness import assigned

from .broker_beside_a_quorum import Beside, beside_a_quorum

STEPS = 150
PLACE = ("solo", 0)


class Run:
    """Three clients, each with a separate group, whose offsets it fetches after each transaction."""

    def __init__(self, broker: Beside, seed: int) -> None:
        self.broker, self.random = broker, random.Random(seed)
        self.handlers = TxnOffsetCommitHandlers(
            broker.groups, broker.replicas, broker.pending_writes, lambda: broker.image, lambda: 0, 100
        )
        self.clients = [CommittingClient(self, f"x{number}") for number in range(3)]

    async def steps(self) -> None:
        for _ in range(STEPS):
            await self.random.choices(
                [self.client_goes_on, self.feed, self.turns, self.quorum_stops, self.elect],
                [10, 3, 6, 1, 1],
            )[0]()
        self.broker.quorum.answers = True
        async with asyncio.timeout(60):
            for client in self.clients:
                while client.busy is not None and not client.busy.done():
                    self.broker.catch_up()
                    await asyncio.sleep(0.001)
                await client.finish()

    async def client_goes_on(self) -> None:
        await self.random.choice(self.clients).go_on()

    async def feed(self) -> None:
        self.broker.catch_up()

    async def turns(self) -> None:
        for _ in range(self.random.randrange(20)):
            await asyncio.sleep(0)

    async def quorum_stops(self) -> None:
        self.broker.quorum.answers = not self.broker.quorum.answers

    async def elect(self) -> None:
        """Elect this broker again: it learns unreported markers from its log."""
        self.broker.quorum.fence(1)
        if self.random.random() < 0.5:
            self.broker.catch_up()
        self.broker.quorum.unfence(1)
        self.broker.catch_up()


class CommittingClient:
    """A client that does one step after the other; any failure makes it abort."""

    def __init__(self, run: Run, name: str) -> None:
        self.run, self.name = run, name
        self.who = run.broker.quorum.begin(name)
        self.committed = -1
        self.offset = 0
        self.pending = -1
        self.must_abort = False
        self.busy: asyncio.Task[None] | None = None

    async def go_on(self) -> None:
        if self.busy is not None and not self.busy.done():
            return
        if self.busy is not None:
            await self.busy
        work = self.commit_offset() if self.run.random.random() < 0.6 else self.end()
        self.busy = asyncio.create_task(work)

    async def finish(self) -> None:
        if self.busy is not None:
            await self.busy
        broker = self.run.broker
        broker.catch_up()
        while broker.groups.loading:
            await asyncio.sleep(0.001)
        await self.commit_offset()
        await self.end()
        assert self.seen() == self.committed

    async def commit_offset(self) -> None:
        answered: asyncio.Future[TxnOffsetCommitResponse] = asyncio.get_running_loop().create_future()
        self.offset += 1
        row = TxnOffsetCommitRequestPartition(partition_index=PLACE[1], committed_offset=self.offset)
        message = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=self.name,
            producer_id=self.who[0],
            producer_epoch=self.who[1],
            topics=[TxnOffsetCommitRequestTopic(name=PLACE[0], partitions=[row])],
        )
        request = SimpleNamespace(access=EVERYTHING, api_version=5, holders=(), reply=answered.set_result)
        self.run.handlers.commit(cast(ClientRequest, request), message)
        code = (await answered).topics[0].partitions[0].error_code
        if code == ErrorCode.NONE:
            self.pending = self.offset
        else:
            self.must_abort = True

    async def end(self) -> None:
        """Repeat EndTxn by another broker until it is answered."""
        broker = self.run.broker
        commits = not self.must_abort and self.run.random.random() < 0.6
        while True:
            ended = broker.quorum.end(self.who, commits=commits, name=self.name)
            if ended.error_code == ErrorCode.NONE:
                break
            assert ended.error_code == ErrorCode.CONCURRENT_TRANSACTIONS, ended
            await asyncio.sleep(0.001)
        # That broker has the decision, and so much of the feed.
        broker.catch_up()
        while True:
            try:
                await broker.completion_waits.over(self.name, ended.number, 0.01)
                break
            except KafkaError:
                broker.catch_up()
        self.who = (ended.producer_id, ended.producer_epoch)
        if commits and self.pending >= 0:
            self.committed = self.pending
        self.pending, self.must_abort = -1, False
        if self.run.random.random() < 0.8:
            self.check()

    def check(self) -> None:
        """Check the offsets in the turn in which the end is answered."""
        try:
            shard = self.run.broker.groups.shard_for(self.name)
        except KafkaError as error:
            if error.code not in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR):
                raise
            return
        shard.check()
        assert not shard.offsets.pending.has(self.name, PLACE), f"{self.name} is unstable"
        assert self.seen() == self.committed, self.name

    def seen(self) -> int:
        found = self.run.broker.groups.shard_for(self.name).offsets.get(self.name, PLACE)
        return -1 if found is None else found.offset


@pytest.mark.parametrize("seed", range(12))
async def test_whoever_is_told_of_the_end_finds_the_offsets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(pending_writes, "WAIT_MAX_S", 0.05)
    monkeypatch.setattr(pending_writes, "GRACE_S", 0.002)
    monkeypatch.setattr(pending_writes, "ASK_AGAIN_S", 0.005)
    monkeypatch.setattr(markers, "RETRY_S", 0.005)
    async with beside_a_quorum(tmp_path) as broker:
        broker.quorum.create(assigned(OFFSETS_TOPIC, [1]))
        broker.catch_up()
        await Run(broker, seed).steps()
        broker.quorum.machine.check()
