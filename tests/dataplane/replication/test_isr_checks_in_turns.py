"""Tens of thousands of leaderships need checks when a broker is away: the loop has turns between them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, cast
from unittest import mock

import pytest

from ottla.dataplane.replication.replica.partition import Partition
from ottla.dataplane.replication.replicas.isr_upkeep import IsrUpkeep
from ottla.dataplane.runtime.change_set import ChangeSet
from ottla.dataplane.runtime.steps import PER_TURN

AWAY = 3


class Led:
    """A reduced leadership, with broker 3 outside its ISR."""

    topic_id = bytes(16)

    def __init__(self, index: int, looked: list[int]) -> None:
        self.index = index
        self._looked = looked
        self.leader: Any = mock.Mock(is_settled=False, followers=[AWAY])
        self.leader.in_sync.maximal = {1, 2}
        self.leader.propose_shrink.return_value = None

    def advance(self) -> None:
        self._looked.append(self.index)


class Rig:
    """The checker, and the checked leaderships."""

    def __init__(self, count: int) -> None:
        self.looked: list[int] = []
        self.partitions = [Led(index, self.looked) for index in range(count)]
        moved: ChangeSet[Partition] = ChangeSet()
        self.sessions = mock.Mock()
        self.brokers = {AWAY: mock.Mock(fenced=True)}
        self.upkeep = IsrUpkeep(
            moved.since(lambda: cast(Iterator[Partition], iter(self.partitions))),
            mock.AsyncMock(),
            lambda: self.brokers,
            lambda: 0,
            self.sessions,
            asyncio.get_running_loop(),
        )

    async def turns(self, count: int) -> list[int]:
        """Return the number of checks in each turn of the loop so far, and in the next `count`."""
        seen = [len(self.looked)]
        for _ in range(count):
            await asyncio.sleep(0)
            seen.append(len(self.looked))
        return [after - before for before, after in zip([0, *seen], seen, strict=False)]


@pytest.mark.parametrize("broker_comes_back", [False, True])
async def test_the_loop_has_turns_while_many_are_looked_at(broker_comes_back: bool) -> None:
    rig = Rig(2 * PER_TURN + 7)
    if broker_comes_back:
        rig.brokers[AWAY].fenced = False
        rig.upkeep.broker_changed(AWAY, ())
    else:
        rig.upkeep.check()
    assert await rig.turns(4) == [PER_TURN, PER_TURN, 7, 0, 0]
    assert sorted(rig.looked) == list(range(2 * PER_TURN + 7))
    assert rig.sessions.offer.call_count == (len(rig.looked) if broker_comes_back else 0)
    await rig.upkeep.close()


async def test_a_check_that_goes_on_is_not_begun_anew() -> None:
    rig = Rig(PER_TURN + 7)
    rig.upkeep.check()
    rig.upkeep.check()
    assert await rig.turns(3) == [PER_TURN, 7, 0, 0]
    rig.upkeep.check()
    assert await rig.turns(2) == [2 * PER_TURN + 7, 7, 0], "those that are not settled are looked at again"
    await rig.upkeep.close()


async def test_what_changes_amid_a_check_counts_as_it_is_then() -> None:
    rig = Rig(PER_TURN + 3)
    rig.upkeep.check()
    gone, settled, left = rig.partitions[PER_TURN:]
    gone.leader = None
    settled.leader.is_settled = True
    cast(Any, settled).record_deletion = mock.Mock(waiting=False)
    await rig.turns(2)
    assert gone.index not in rig.looked
    assert {settled.index, left.index} <= set(rig.looked)
    rig.looked.clear()
    rig.upkeep.check()
    await rig.turns(2)
    assert {gone.index, settled.index}.isdisjoint(rig.looked)
    assert left.index in rig.looked
    await rig.upkeep.close()


async def test_a_broker_that_changes_amid_a_check_is_looked_at_behind_it() -> None:
    rig = Rig(PER_TURN + 7)
    rig.upkeep.check()
    rig.brokers[AWAY].fenced = False
    rig.upkeep.broker_changed(AWAY, ())
    assert len(rig.looked) == PER_TURN
    await rig.turns(4)
    assert {call.args[1][1] for call in rig.sessions.offer.call_args_list} == set(range(PER_TURN + 7))
    await rig.upkeep.close()


async def test_nothing_is_looked_at_after_the_end() -> None:
    rig = Rig(PER_TURN + 7)
    rig.upkeep.check()
    await rig.upkeep.close()
    assert await rig.turns(2) == [PER_TURN, 0, 0]
