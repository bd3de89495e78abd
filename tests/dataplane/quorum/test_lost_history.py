"""A broker whose quorum has lost known history logs this, refuses commands, and waits; it goes on once all is back."""

import asyncio
import shutil
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import uvloop

from ottla.dataplane.quorum import QuorumSession
from ottla.dataplane.quorum.commands import Answer, CommandSubmitter
from ottla.dataplane.quorum.config import MetadataPosition
from ottla.dataplane.quorum.image_follower import Fold, ImageFollower
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.broker_commands import AllocateProducerIds
from ottla.protocol.messages.metadata_records import ProducerIdsRecord, encode_record
from ottla.protocol.messages.quorum_session import CommandReply, CommandStatus, FeedRecords, SubmitCommand

from .cluster import QuorumAndSessions, until


def run(scenario: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await scenario

    uvloop.run(bounded())


async def allocate(session: QuorumSession) -> None:
    await session.submit(AllocateProducerIds(broker_id=1, broker_epoch=session.broker_epoch), 10_000)


class Folder:
    """The folder of the only quorum node, and copies of it."""

    def __init__(self, cluster: QuorumAndSessions, path: Path) -> None:
        self._cluster = cluster
        self._folder = path / "quorum-101"
        self._copies = path

    async def keep(self, name: str) -> None:
        await self._cluster.stop_node(101)
        shutil.copytree(self._folder, self._copies / name)
        await self._cluster.start_node(101)
        await self._cluster.leading()

    async def put_back(self, name: str) -> None:
        if self._cluster.nodes:
            await self._cluster.stop_node(101)
        shutil.rmtree(self._folder)
        shutil.copytree(self._copies / name, self._folder)
        await self._cluster.start_node(101)
        await self._cluster.leading()


def journal_end(cluster: QuorumAndSessions) -> int:
    core = cluster.nodes[101].raft._core
    assert core is not None
    return core.journal.last_index


def test_commands_are_refused_at_once_until_the_newer_folder_is_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with QuorumAndSessions(tmp_path) as cluster:
            folder = Folder(cluster, tmp_path)
            session = await cluster.broker(1)
            await session.unfenced()
            await folder.keep("old")
            await allocate(session)
            # Terms go back, too: a leader of a lower term is asked, where it would be taken for one that is deposed.
            await folder.keep("new")
            await folder.put_back("old")
            await until(lambda: session.history_lost)
            assert "Restore the quorum from a backup" in session.history_lost
            with pytest.raises(KafkaError) as refused:
                await asyncio.wait_for(allocate(session), 1)
            assert refused.value.code is ErrorCode.BROKER_NOT_AVAILABLE
            assert not await session.shut_down_controlled(20)
            session._wants_shutdown = False
            end = journal_end(cluster)
            await asyncio.sleep(0.3)
            assert journal_end(cluster) == end

            await folder.put_back("new")
            await until(lambda: not session.history_lost)
            await allocate(session)

    run(scenario())


def test_a_broker_that_starts_again_is_refused_before_it_is_registered(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with QuorumAndSessions(tmp_path) as cluster:
            first = await cluster.broker(1)
            await first.unfenced()
            reached = first.position
            assert reached.history != 0
            await first.stop()
            for position in (
                MetadataPosition(reached.offset + 1, 5),
                MetadataPosition(reached.offset, reached.history + 1),
            ):
                config = replace(cluster.session_config(1), reached=position)
                again = QuorumSession(config, on_delta=lambda image, delta: None)
                cluster.sessions.append(again)
                await again.start()
                await until(lambda again=again: again.history_lost)  # type: ignore[misc]
                assert again.broker_epoch < 0
                assert again.position == position
                await again.stop()
            config = replace(cluster.session_config(1), reached=reached)
            well = QuorumSession(config, on_delta=lambda image, delta: None)
            cluster.sessions.append(well)
            await well.start()
            await well.registered()
            assert not well.history_lost

    run(scenario())


def test_a_broker_that_is_behind_the_declared_restoration_goes_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with QuorumAndSessions(tmp_path) as cluster:
            session = await cluster.broker(1)
            await session.unfenced()
            for _ in range(3):
                await cluster.stop_node(101)
                await cluster.start_node(101)
                await cluster.leading()
                await allocate(session)
            assert not session.history_lost

    run(scenario())


def push(first: int, value: int, first_history: int, end_history: int) -> FeedRecords:
    record = encode_record(ProducerIdsRecord(next_producer_id=value))
    return FeedRecords(
        first_offset=first,
        end_offset=first + 1,
        records=[record],
        first_history=first_history,
        end_history=end_history,
    )


def test_records_of_another_history_are_not_folded() -> None:
    follower = ImageFollower(1)
    assert not isinstance(follower.records(push(0, 1000, 0, 11)), Fold)
    assert follower.records(push(1, 5000, 12, 13)) is Fold.DIVERGED
    assert (follower.image.offset, follower.image.next_producer_id, follower.history) == (1, 1000, 11)
    assert not isinstance(follower.records(push(1, 2000, 11, 14)), Fold)
    assert not isinstance(follower.records(push(2, 3000, 0, 0)), Fold), "of a node without marks"
    assert not isinstance(follower.records(push(3, 4000, 17, 18)), Fold), (
        "nothing is known of the image's own"
    )


def submitter() -> tuple[CommandSubmitter, list[int]]:
    sent: list[int] = []

    def send(submission: SubmitCommand) -> bool:
        sent.append(submission.sequence)
        return True

    commands = CommandSubmitter(1, send, 10_000)
    commands.broker_epoch = 7
    return commands, sent


def out_of_order(sequence: int) -> CommandReply:
    return CommandReply(sequence=sequence, status=CommandStatus.OUT_OF_ORDER)


async def test_a_command_that_is_refused_again_and_again_is_given_up() -> None:
    commands, sent = submitter()
    waiting = [asyncio.create_task(commands.submit(AllocateProducerIds())) for _ in range(2)]
    await asyncio.sleep(0)
    answers = []
    while (answer := commands.replied(out_of_order(1))) is Answer.SEND_AGAIN:
        answers.append(answer)
        assert commands.replied(out_of_order(2)) is Answer.SEND_AGAIN
        commands.flush()
    assert answer is Answer.FORGOTTEN
    assert sent == [1, 2, 1, 2, 1, 2]
    commands.suspend(ErrorCode.BROKER_NOT_AVAILABLE, "the quorum has forgotten it")
    for task in waiting:
        with pytest.raises(KafkaError, match="has forgotten it"):
            await task
    # Its outcome may still become known: a gap in the sequences would be refused for ever.
    commands.new_leader()
    assert sent[-2:] == [1, 2]


async def test_a_command_that_only_waits_for_one_before_it_is_sent_again() -> None:
    commands, _ = submitter()
    waiting = [asyncio.create_task(commands.submit(AllocateProducerIds())) for _ in range(2)]
    await asyncio.sleep(0)
    for _ in range(10):
        assert commands.replied(out_of_order(2)) is Answer.SEND_AGAIN
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
