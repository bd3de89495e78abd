"""ISR changes reach the quorum in commands of bounded size, each change once, the longest waiting first."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

from ottla.dataplane.replication.leader.isr_updates import CHANGES_MAX, IsrUpdates, Outcome
from ottla.dataplane.replication.replica.partition import Partition
from ottla.dataplane.replication.roles.in_sync import Proposal
from ottla.dataplane.replication.roles.leader import Refusal
from ottla.protocol.errors import ErrorCode, KafkaError


class Lost:
    """A partition that is no longer led here, so its proposal's outcome is irrelevant."""

    leader = None


async def sent(count: int, *, fails: int = 0) -> list[list[Partition]]:
    """Return the commands for `count` proposals; the first `fails` are not answered."""
    commands: list[list[Partition]] = []
    settled: list[Partition] = []

    async def submit(batch: Sequence[tuple[Partition, Proposal]]) -> Sequence[Outcome]:
        await asyncio.sleep(0)
        commands.append([partition for partition, _ in batch])
        if len(commands) <= fails:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no answer")
        return [Refusal.UNKNOWN] * len(batch)

    updates = IsrUpdates(submit, settled.append)
    partitions = [cast(Partition, Lost()) for _ in range(count)]
    for partition in partitions:
        updates.propose(partition, cast(Proposal, object()))
    async with asyncio.timeout(20):
        while len(settled) < count:
            await asyncio.sleep(0.001)
    assert [partition for command in commands for partition in command] == partitions == settled
    return commands


async def test_a_few_changes_go_in_one_command() -> None:
    assert len(await sent(3)) == 1


async def test_no_command_holds_the_quorum_up() -> None:
    """A command of 33,084 changes was not answered in time, and was repeated for ever."""
    assert [len(command) for command in await sent(2 * CHANGES_MAX + 1)] == [CHANGES_MAX, CHANGES_MAX, 1]


async def test_a_command_without_an_answer_keeps_nobody_else_waiting() -> None:
    assert len(await sent(CHANGES_MAX + 1, fails=1)) == 2
