"""A quorum node detects that its state is contradictory."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from ottla.metadata_quorum.raft.core import Core
from ottla.metadata_quorum.raft.messages import StaleTerm
from ottla.metadata_quorum.raft.vote import Vote
from tests.simulation.raft.world import World, virtual_time


@pytest.fixture
def leader() -> Iterator[Core]:
    """Return the leader of three nodes, with a few committed entries."""
    world = World(3, 3, ())
    with virtual_time(world):
        for node in world.nodes.values():
            node.start()
        assert world.run(world.now() + 5, lambda: bool(world.leaders))
        for _ in range(5):
            world.propose(world.leaders[0])
            world.run(world.now() + 0.2)
        core = world.leaders[0].running
        core.check()
        yield core


def _lose_an_entry(core: Core) -> None:
    del core.journal.entries[2]


def _terms_fall(core: Core) -> None:
    core.journal.entries[-2] = (b"", core.journal.last_index - 1, core.journal.last_term + 1)


def _indexes_repeat(core: Core) -> None:
    payload, index, term = core.journal.entries[-2]
    core.journal.entries[-2] = (payload, index - 1, term)


def _durable_past_the_end(core: Core) -> None:
    core.journal.durable_index = core.journal.last_index + 1


def _durable_too_little(core: Core) -> None:
    core.journal.durable_index -= 1


def _apply_too_much(core: Core) -> None:
    core.consensus.mark_applied(core.journal.last_index + 1)


def _commit_too_much(core: Core) -> None:
    core.consensus._SyncObj__raftCommitIndex = core.journal.last_index + 1


def _forget_the_term(core: Core) -> None:
    core._vote = core._durable_vote = Vote(core.consensus.term - 1, None)


def _hold_back_for_nothing(core: Core) -> None:
    core._held.append((2, StaleTerm(1)))


def _await_what_is_applied(core: Core) -> None:
    core.commands._waiting[core.consensus.last_applied] = (1, [])


def _miscount_the_queue(core: Core) -> None:
    core.commands._queued_bytes = 1


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (_lose_an_entry, r"\d+ entries from \d+ to"),
        (_terms_fall, r"term \d+\) follows"),
        (_indexes_repeat, r"term \d+\) follows"),
        (_durable_past_the_end, "durable up to"),
        (_durable_too_little, "and nothing waits"),
        (_apply_too_much, "in the journal, "),
        (_commit_too_much, "its log ends at"),
        (_forget_the_term, "on disk, log of"),
        (_hold_back_for_nothing, "1 messages wait for a vote that is durable"),
        (_await_what_is_applied, "commands wait for"),
        (_miscount_the_queue, "0 bytes are queued, 1 counted"),
    ],
)
def test_a_node_that_contradicts_itself(leader: Core, spoil: Callable[[Core], None], said: str) -> None:
    spoil(leader)
    with pytest.raises(AssertionError, match=said):
        leader.check()
