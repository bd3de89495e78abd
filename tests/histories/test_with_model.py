"""A model of a partition and its clients, in a few lines.

Without bugs no invariant complains; with a bug a matching invariant does.
"""

from __future__ import annotations

import zlib
from enum import Enum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.histories.invariants import HistoryBroken, check_all
from tests.histories.operations import (
    NOTHING_COMMITTED,
    Commit,
    Dump,
    Fetched,
    FinalRead,
    Healed,
    History,
    Poll,
    Position,
    Reason,
    Send,
    Watermark,
)


class Bug(Enum):
    """A bug that the model shows once, with the invariants that may find it."""

    NONE = frozenset[str]()
    LOSE = frozenset({"LostWrite", "UnseenAfterHeal"})
    """An acknowledged record is gone, and the next record takes its place."""
    OVERWRITE = frozenset({"InconsistentOffset"})
    """A record stands where another had been acknowledged."""
    DUPLICATE = frozenset({"Duplicate"})
    """A retry is appended again."""
    REORDER = frozenset({"SendsOutOfOrder"})
    """Two records that are on their way together change places."""
    MISPLACE = frozenset({"AcknowledgedElsewhere"})
    """An acknowledgement names another offset."""
    APPEND_REFUSED = frozenset({"FailedSendAppears"})
    """A record that is refused is appended all the same."""
    RETRACT = frozenset({"Retraction"})
    """A record that a consumer got is taken back."""
    SKIP = frozenset({"SkippedRecord"})
    """A consumer does not get a record."""
    REPEAT = frozenset({"PollsOutOfOrder"})
    """A consumer gets a record again."""
    FORGET_COMMIT = frozenset({"CommittedOffsetWentBack"})
    """An acknowledged commit is undone; only among the last steps, where no later one hides it."""
    DIVERGE = frozenset({"ReplicaDivergence"})
    """A follower holds another record."""


class Model:
    """A partition with producers that do not wait, consumers that begin at 0, and one committed offset."""

    def __init__(self, bug: Bug, armed_from: int) -> None:
        self.bug, self.armed_from = bug, armed_from
        self.history = History()
        self.log: list[bytes] = []
        self.positions: dict[int, int] = {}
        self.committed = NOTHING_COMMITTED
        self.sent = 0
        self.now_s = 0.0
        self.step = 0

    def play(self, action: str, actor: int) -> None:
        """Play a single step of a client."""
        self.step += 1
        self.now_s += 1
        getattr(self, action)(actor)

    def strikes(self, bug: Bug) -> bool:
        """Return whether the bug happens now; it happens once."""
        if self.bug is not bug or self.step <= self.armed_from:
            return False
        self.bug = Bug.NONE
        return True

    def begin(self, actor: int) -> Send:
        self.sent += 1
        value = b"%d:%d" % (actor, self.sent)
        send = Send("a", f"p{actor}", "t", 0, value, -1, True, self.sent, self.now_s)
        self.history.add(send)
        return send

    def send(self, actor: int) -> None:
        first, second = self.begin(actor), self.begin(actor)
        if self.strikes(Bug.REORDER):
            self.log += [second.value, first.value]
        else:
            self.log += [first.value, second.value]
        if self.strikes(Bug.DUPLICATE):
            self.log.append(first.value)
        misplaced = 1000 if self.strikes(Bug.MISPLACE) else 0
        for send in (first, second):
            send.finish(self.now_s + 0.5, offset=self.log.index(send.value) + misplaced)
        if self.strikes(Bug.LOSE):
            del self.log[-1]
        elif self.strikes(Bug.OVERWRITE):
            self.log[-1] = self.begin(actor).value

    def send_without_answer(self, actor: int) -> None:
        send = self.begin(actor)
        if self.sent % 2:
            self.log.append(send.value)
        send.finish(self.now_s + 0.5, "REQUEST_TIMED_OUT")

    def send_in_vain(self, actor: int) -> None:
        send = self.begin(actor)
        if self.strikes(Bug.APPEND_REFUSED):
            self.log.append(send.value)
        send.finish(self.now_s + 0.5, "NOT_ENOUGH_REPLICAS")

    def poll(self, actor: int) -> None:
        if actor not in self.positions:
            self.history.add(Position("c", f"c{actor}", "t", 0, 0, Reason.START, self.now_s))
        position = self.positions.get(actor, 0)
        offsets = list(range(position, min(position + 5, len(self.log))))
        if len(offsets) > 1 and self.strikes(Bug.SKIP):
            del offsets[0]
        elif offsets and self.strikes(Bug.REPEAT):
            offsets.append(offsets[0])
        for offset in offsets:
            self.history.add(Poll("c", f"c{actor}", "t", 0, offset, 1, self.log[offset], self.now_s))
        self.positions[actor] = offsets[-1] + 1 if offsets else position
        self.history.add(Watermark(f"c{actor}", "t", 0, 1, len(self.log), 0, self.now_s, 1))
        if offsets and self.strikes(Bug.RETRACT):
            del self.log[offsets[-1] :]
            self.positions = {key: min(value, len(self.log)) for key, value in self.positions.items()}

    def commit(self, actor: int) -> None:
        before, self.committed = self.committed, self.positions.get(actor, 0)
        commit = Commit("g", f"m{actor}", -1, "t", 0, self.committed, self.now_s)
        commit.finish(self.now_s + 0.5)
        self.history.add(commit)
        if before != self.committed and self.strikes(Bug.FORGET_COMMIT):
            self.committed = before

    def ask(self, _: int) -> None:
        self.history.add(Fetched("g", "t", 0, self.committed, self.now_s, self.now_s + 0.5))

    def end(self) -> History:
        self.now_s += 10
        log = list(enumerate(self.log))
        self.history.add(Healed(self.now_s, 1))
        self.history.add(FinalRead("t", 0, log, end=len(log), at_s=self.now_s))
        for broker in range(3):
            entries = [(offset, 1, zlib.crc32(value)) for offset, value in log]
            if entries and self.strikes(Bug.DIVERGE):
                entries[0] = (0, 2, 0)
            self.history.add(Dump(broker, "t", 0, 0, len(log), entries, self.now_s))
        return self.history


ACTIONS = ("send", "send_without_answer", "send_in_vain", "poll", "commit", "ask")
LAST = [("send", 0), ("send_in_vain", 0), *[("poll", 3)] * 50, ("commit", 3), ("ask", 3)]
"""Steps that give every bug an occasion: consumer 3, idle before, reads everything."""
steps = st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 2)), max_size=40)


@given(steps)
def test_the_right_model_is_never_complained_about(played: list[tuple[str, int]]) -> None:
    model = Model(Bug.NONE, 0)
    for action, actor in [*played, *LAST]:
        model.play(action, actor)
    check_all(model.end())


@pytest.mark.parametrize("bug", [pytest.param(bug, id=bug.name) for bug in Bug if bug is not Bug.NONE])
@given(steps, st.integers(0, 40))
def test_each_bug_is_found(bug: Bug, played: list[tuple[str, int]], armed_from: int) -> None:
    model = Model(bug, len(played) if bug is Bug.FORGET_COMMIT else min(armed_from, len(played)))
    for action, actor in [*played, *LAST]:
        model.play(action, actor)
    history = model.end()
    assert model.bug is Bug.NONE, "it had no occasion"
    with pytest.raises(HistoryBroken) as caught:
        check_all(history)
    assert bug.value & set(caught.value.names), caught.value
