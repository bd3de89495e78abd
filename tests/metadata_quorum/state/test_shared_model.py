"""A transactional id with many writers, and application versions, under random commands.

The model knows the members of the open transaction, the committed versions, and the last requested commit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla.metadata_quorum.state.controller import Controller
from ottla.protocol.cluster.transaction_table import Phase
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import transaction_commands as t
from ottla.protocol.messages.command import PlainResult

from .transactional import Identity, Transactions

OK, STATE = ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE


@dataclass(frozen=True)
class Commit:
    """A commit request, which may be repeated."""

    who: Identity
    writers: tuple[Identity, ...]
    number: int
    version: int


class SharedTransactions(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.cluster = Transactions(3)
        self.owner = self.cluster.begin()
        self.open = False
        self.number = 0
        self.writers: list[Identity] = []
        # : all identities there ever were, the owners under each epoch
        self.given: list[Identity] = [self.owner]
        self.former: list[tuple[Identity, int]] = []
        self.versions: list[int] = []
        self.last: tuple[Commit, t.EndTransactionResult] | None = None

    @property
    def decided(self) -> bool:
        return self.cluster.state().phase.is_decided

    def given_out(self, who: Identity) -> None:
        assert who not in self.given, "two have the same producer id and epoch"
        self.given.append(who)

    def over(self) -> None:
        self.former.append((self.owner, self.number))
        self.open, self.writers = False, []

    # The owner

    @rule()
    def begin(self) -> None:
        found = self.cluster.add(self.owner, ())
        if self.decided:
            assert found.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
            return
        if not self.open:
            self.number, self.open, self.last = self.number + 1, True, None
        assert (found.error_code, found.number) == (OK, self.number)

    @rule(version=st.integers(-1, 6))
    def find_or_begin(self, version: int) -> None:
        """Find or begin a transaction as a client that only knows the name."""
        before = repr(self.cluster.state())
        found = self.cluster.find_or_begin(version)
        if 0 <= version <= max(self.versions, default=-1):
            assert (found.was_committed, found.number, repr(self.cluster.state())) == (True, -1, before)
            return
        assert not found.was_committed
        if self.decided:
            assert found.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
            return
        if not self.open:
            self.number, self.open, self.last = self.number + 1, True, None
        answer = (found.error_code, (found.producer_id, found.producer_epoch), found.number)
        assert answer == (OK, self.owner, self.number)

    @rule()
    def init(self) -> None:
        """Restart the owner: the open transaction is aborted at once, and a repeated request gets the next epoch."""
        found = self.cluster.init()
        if found.error_code == OK:
            self.given_out((found.producer_id, found.producer_epoch))
            assert found.app_version == max(self.versions, default=-1)
        self.changed()

    @precondition(lambda self: self.open)
    @rule()
    def expire(self) -> None:
        due = t.OpenTransaction(transactional_id="x", number=self.number)
        self.cluster.do(t.ExpireTransactions(transactions=[due]), PlainResult)
        self.changed()

    def changed(self) -> None:
        """Replace the model's owner, which is fenced, by the controller's."""
        if self.open:
            self.over()
        state = self.cluster.state()
        self.owner, self.last = (state.producer_id, state.producer_epoch), None
        if self.owner not in self.given:
            self.given.append(self.owner)

    @rule(data=st.data(), commits=st.booleans(), version=st.integers(-1, 6), named=st.booleans())
    def end(self, data: st.DataObject, commits: bool, version: int, named: bool) -> None:
        chosen = (
            tuple(data.draw(st.lists(st.sampled_from(self.writers), unique=True))) if self.writers else ()
        )
        asked = Commit(self.owner, chosen, self.number if named else -1, version)
        if not commits:
            asked = replace(asked, version=-1)
        before = self.last_commit_index
        ended = self.ask(asked, commits=commits)
        if self.decided_before(asked, named):
            assert ended.error_code != OK
            return
        assert ended.error_code == OK, ended
        assert ended.commit_index == before + 1
        assert ended.was_committed == (commits and 0 <= version <= max(self.versions, default=-1))
        if commits and version >= 0 and not ended.was_committed:
            self.versions.append(version)
        if not self.open:
            self.number += 1
        assert ended.number == self.number
        self.check_outcome(chosen if commits and not ended.was_committed else None, asked.who)
        self.over()
        self.owner = ended.producer_id, ended.producer_epoch
        self.given_out(self.owner)
        self.last = (asked, ended) if commits else None

    def decided_before(self, asked: Commit, named: bool) -> bool:
        """Return whether the last transaction is still being written, or is over and named;
        `number` 0 was never begun.
        """
        return self.was_decided or (named and not self.open)

    def ask(self, asked: Commit, *, commits: bool = True) -> t.EndTransactionResult:
        self.was_decided = self.decided
        return self.cluster.end(
            asked.who, commits=commits, writers=asked.writers, number=asked.number, version=asked.version
        )

    def check_outcome(self, chosen: tuple[Identity, ...] | None, owner: Identity) -> None:
        state = self.cluster.state()
        commits = chosen is not None
        assert state.phase.commits == commits
        counted = {owner[0], *(producer_id for producer_id, _ in chosen)} if chosen is not None else set()
        for producer_id, writer in state.writers.items():
            assert writer.committed == (producer_id in counted)

    @precondition(lambda self: self.last)
    @rule()
    def end_again(self) -> None:
        """Repeat the end after a lost answer. Only markers may have been written since."""
        assert self.last is not None
        asked, answer = self.last
        if asked.number in (-1, answer.number):
            assert self.ask(asked) == answer

    @precondition(lambda self: self.open)
    @rule(data=st.data(), what=st.sampled_from(("stranger", "old epoch", "old epoch", "number", "owner")))
    def end_wrongly(self, data: st.DataObject, what: str) -> None:
        """Send a wrong end, which must change nothing, not even the application version."""
        asked = Commit(self.owner, tuple(self.writers), -1, 100)
        if what == "stranger":
            asked = replace(asked, writers=(*self.writers, (10**6, 0)))
        elif what == "old epoch":
            stale = [identity for identity in self.given if identity not in (*self.writers, self.owner)]
            if not stale:
                return
            asked = replace(asked, writers=(*self.writers, data.draw(st.sampled_from(stale))))
        elif what == "number":
            asked = replace(asked, number=self.number + data.draw(st.sampled_from((-1, 1))))
            if asked.number < 0:
                return
        else:
            asked = replace(asked, who=(self.owner[0], self.owner[1] + 1))
        before = repr(self.cluster.state())
        assert self.ask(asked).error_code != OK
        assert repr(self.cluster.state()) == before

    # Joining writers

    @rule()
    def join(self) -> None:
        found = self.cluster.join(self.owner, number=self.number)
        if not self.open:
            assert found.error_code == STATE
            return
        assert found.error_code == OK
        self.given_out((found.producer_id, found.producer_epoch))
        self.writers.append((found.producer_id, found.producer_epoch))

    @precondition(lambda self: self.former)
    @rule(data=st.data())
    def join_what_is_over(self, data: st.DataObject) -> None:
        owner, number = data.draw(st.sampled_from(self.former))
        if (owner, number) != (self.owner, self.number):
            assert self.cluster.join(owner, number=number).error_code == STATE

    @rule(data=st.data(), index=st.integers(0, 2))
    def write(self, data: st.DataObject, index: int) -> None:
        """Write as any former writer; only members of the open transaction succeed."""
        who = data.draw(st.sampled_from(self.given))
        found = self.cluster.add(who, self.cluster.places(index))
        if who in self.writers or (who == self.owner and self.open):
            assert found.error_code == OK
        elif who != self.owner:
            assert found.error_code != OK
        elif found.error_code == OK:
            self.number, self.open, self.last = self.number + 1, True, None

    # Others

    @rule(indexes=st.sets(st.integers(0, 2)))
    def write_markers(self, indexes: set[int]) -> None:
        self.cluster.write_markers(self.cluster.places(*indexes))

    @rule()
    def forget(self) -> None:
        """Forget the id after long silence."""
        unused = t.OpenTransaction(transactional_id="x", number=self.number)
        command = t.ForgetTransactionalIds(transactions=[unused], unused_since_ms=2**62)
        if self.versions:
            self.cluster.do(command, PlainResult)

    @rule(found=st.booleans())
    def delete(self, found: bool) -> None:
        """Delete the id, and begin it again with other producer ids for the owner and all writers."""
        is_over = not self.open and not self.decided
        command = t.DeleteTransactionalId(transactional_id="x")
        error = self.cluster.do(command, PlainResult).error_code
        assert error == (OK if is_over else ErrorCode.CONCURRENT_TRANSACTIONS)
        if is_over:
            if found:
                first = self.cluster.find_or_begin()
                self.owner = (first.producer_id, first.producer_epoch)
            else:
                self.owner = self.cluster.begin()
            assert self.owner[0] not in {producer_id for producer_id, _ in self.given}
            self.given_out(self.owner)
            self.number, self.versions, self.last, self.open = int(found), [], None, found

    @rule()
    def restart_from_a_snapshot(self) -> None:
        machine = Controller()
        machine.restore(self.cluster.machine.snapshot())
        self.cluster.machine.adopt(machine)

    @property
    def last_commit_index(self) -> int:
        return self.cluster.machine.image.transactions.next_commit_index - 1

    @invariant()
    def agrees(self) -> None:
        self.cluster.check()
        state = self.cluster.state()
        assert (state.phase is Phase.ONGOING) == self.open
        assert state.number == self.number
        assert state.app_version == max(self.versions, default=-1)
        assert self.versions == sorted(set(self.versions)), "a version was committed twice"
        if self.open:
            joined = dict(self.writers)
            known = {writer.producer_id: writer.producer_epoch for writer in state.writers.values()}
            known.pop(self.owner[0], None)
            assert known == joined


TestSharedTransactions = SharedTransactions.TestCase
TestSharedTransactions.settings = settings(max_examples=60, stateful_step_count=40)
