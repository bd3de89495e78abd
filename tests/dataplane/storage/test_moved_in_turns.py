"""Tens of thousands of replicas change when a broker starts, or another dies: their observers give the loop turns
meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any
from unittest import mock

import pytest

from ottla.dataplane.runtime.change_set import ChangeSet
from ottla.dataplane.runtime.time_slices import MOVED_PER_TURN
from ottla.dataplane.storage.log_cleaner import CleanerSettings, LogCleaner
from ottla.dataplane.storage.log_upkeep import LogUpkeep
from tests.dataplane.log.held_replicas import holds_of

COUNT = 2 * MOVED_PER_TURN + 7


class Replica:
    """A replica of a topic without compaction. It counts its checks."""

    topic, index, high_watermark = "t", 0, 0

    def __init__(self, log: Any) -> None:
        self._log = log
        self.looked = 0

    @property
    def log(self) -> Any:
        self.looked += 1
        return self._log

    def log_start_moved(self) -> None:
        """Do nothing, since no request waits for it."""


class Replicas:
    """All replicas of a broker."""

    def __init__(self, log: mock.Mock) -> None:
        self.all = [Replica(log) for _ in range(COUNT)]
        self.gone: set[Replica] = set()
        self.moved: ChangeSet[Replica] = ChangeSet()

    def __iter__(self) -> Iterator[Replica]:
        return (replica for replica in self.all if replica not in self.gone)

    def holds(self, replica: Replica, /) -> bool:
        """Return whether the replica is present."""
        return replica not in self.gone

    def looked_at(self) -> int:
        """Return the number of replicas checked so far."""
        return sum(replica.looked > 0 for replica in self.all)


def plain_log() -> mock.Mock:
    """Return a log without segments to delete or clean."""
    log = mock.Mock(start_moved=False, doomed=[], failure=None, segments=[1])
    log.config.compacted = False
    return log


def cleaner_of(replicas: Replicas) -> LogCleaner[Replica]:
    return LogCleaner(CleanerSettings(), replicas, lambda: 0, lambda *_: None)


def sweep(replicas: Replicas) -> Coroutine[Any, Any, object]:
    return LogUpkeep(replicas, holds_of(), mock.AsyncMock(), 1000, lambda: 0).sweep()


def clean(replicas: Replicas) -> Coroutine[Any, Any, object]:
    return cleaner_of(replicas).clean_filthiest()


@pytest.mark.parametrize("look", [sweep, clean])
async def test_others_have_turns_while_all_are_looked_at(look: Any) -> None:
    replicas = Replicas(plain_log())
    looking = asyncio.ensure_future(look(replicas))
    before = 0
    while not looking.done():
        await asyncio.sleep(0)
        assert replicas.looked_at() - before <= MOVED_PER_TURN
        before = replicas.looked_at()
    assert not looking.result()
    assert before == COUNT


async def test_what_goes_in_a_turn_between_is_not_cleaned() -> None:
    log = plain_log()
    log.config.compacted, log.segments = True, [1, 2]
    replicas = Replicas(log)
    cleaner = cleaner_of(replicas)
    cleaning = asyncio.ensure_future(cleaner.clean_filthiest())
    await asyncio.sleep(0)
    assert 0 < replicas.looked_at() < COUNT
    replicas.gone |= set(replicas.all)
    assert not await cleaning
