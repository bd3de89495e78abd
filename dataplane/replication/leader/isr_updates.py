"""Submission of ISR changes to the quorum: one command at a time, with the changes that have waited longest.

A broker that returns joins the ISR of each of its partitions at about the same time. A single command with all these
changes would occupy every node of the quorum for longer than its followers wait for a leader.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeAlias

from ....protocol.errors import KafkaError
from ..replica.partition import Partition
from ..roles.in_sync import Proposal
from ..roles.leader import Refusal

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class IsrCommitted:
    """The quorum's answer that it has committed `isr` as the partition's ISR, in `partition_epoch`."""

    partition_epoch: int
    isr: frozenset[int]


Outcome: TypeAlias = IsrCommitted | Refusal
Submit = Callable[[Sequence[tuple[Partition, Proposal]]], Awaitable[Sequence[Outcome]]]
"""A function that sends proposals as one command and returns the outcomes in the order of the proposals.

The function raises KafkaError if the outcomes are unknown."""

CHANGES_MAX = 1_000
"""Maximum number of changes in one command."""
_RETRY_S = 0.05


class IsrUpdates:
    """The queue of ISR changes to be proposed to the quorum. Each leader keeps its proposal as pending until an outcome
    or a newer state of the partition settles it.
    """

    def __init__(self, submit: Submit, on_settled: Callable[[Partition], None]) -> None:
        self._submit = submit
        self._on_settled = on_settled
        self._waiting: dict[Partition, Proposal] = {}
        self._task: asyncio.Task[None] | None = None

    def propose(self, partition: Partition, proposal: Proposal) -> None:
        """Send the partition's ISR change with the next command to the quorum."""
        self._waiting[partition] = proposal
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="ISR updates")

    async def close(self) -> None:
        """Stop sending ISR changes, and drop those that wait."""
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        try:
            while self._waiting:
                batch = list(islice(self._waiting.items(), CHANGES_MAX))
                for partition, _ in batch:
                    del self._waiting[partition]
                try:
                    outcomes = await self._submit(batch)
                except KafkaError as error:
                    logger.warning(
                        "the quorum did not answer about %d ISR changes: %s", len(batch), error.message
                    )
                    outcomes = [Refusal.UNKNOWN] * len(batch)
                    await asyncio.sleep(_RETRY_S)
                for (partition, proposal), outcome in zip(batch, outcomes, strict=True):
                    settle(partition, proposal, outcome, self._again)
                    self._on_settled(partition)
        finally:
            self._task = None

    def _again(self, partition: Partition, proposal: Proposal) -> None:
        self._waiting.setdefault(partition, proposal)


def settle(
    partition: Partition, proposal: Proposal, outcome: Outcome, again: Callable[[Partition, Proposal], None]
) -> None:
    """Apply the quorum's outcome of an ISR proposal to the partition's leader. `again` is called if the proposal must
    be sent once more. A newer state of the partition that arrived meanwhile takes precedence, because every step is a
    compare-and-set.
    """
    leader = partition.leader
    if leader is None or leader.leader_epoch != proposal.leader_epoch:
        return
    if isinstance(outcome, IsrCommitted):
        partition.isr_committed(proposal.leader_epoch, outcome.partition_epoch, outcome.isr)
        return
    repeated = leader.refused(proposal, outcome)
    if repeated is not None:
        again(partition, repeated)
    else:
        partition.advance()
