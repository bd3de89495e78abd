"""Application versions at earlier cuts, compared with a complete history of states."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.metadata_quorum.app_version_answers import AppVersionAnswers
from ottla.metadata_quorum.state.app_version_history import AppVersionHistory, VersionsAtCut
from ottla.metadata_quorum.state.controller import Controller
from ottla.metadata_quorum.transaction_questions import LISTED_MAX
from ottla.protocol.cluster.transaction_table import TransactionTable
from ottla.protocol.messages.app_version_questions import AppVersionsTold, AskAppVersions
from ottla.protocol.messages.transaction_commands import DeleteTransactionalId
from ottla.protocol.messages.transaction_records import (
    CommitIndexRecord,
    TransactionalIdRemovedRecord,
    TransactionRecord,
)

from .transactional import Transactions

NAMES = st.sampled_from("abc")


@dataclass
class Every:
    """The versions after each command, in the order of the commands."""

    offset: int = 0
    next_index: int = 0
    versions: dict[str, int] = field(default_factory=dict)
    states: list[tuple[int, dict[str, int]]] = field(default_factory=list)
    """Next commit index and versions after each command."""

    def moved(self) -> None:
        self.offset += 1
        self.states.append((self.next_index, dict(self.versions)))

    def at_cut(self, cut: int) -> dict[str, int]:
        """Return the newest state in which nothing above the cut is decided."""
        return [versions for next_index, versions in self.states if next_index <= cut + 1][-1]


def play(every: Every, step: tuple[str, str, int]) -> TransactionRecord | TransactionalIdRemovedRecord:
    what, name, version = step
    present = every.versions.get(name, -1)
    if what == "delete":
        every.versions.pop(name, None)
        every.moved()
        return TransactionalIdRemovedRecord(transactional_id=name)
    if what == "begin":
        every.moved()
        return TransactionRecord(transactional_id=name, app_version=present)
    index, every.next_index = every.next_index, every.next_index + 1
    if what == "commit" and version > present:
        every.versions[name] = present = version
    every.moved()
    return TransactionRecord(transactional_id=name, app_version=present, commit_index=index)


@settings(max_examples=400, deadline=None)
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["commit", "commit", "commit", "abort", "begin", "delete"]),
            NAMES,
            st.integers(0, 20),
        ),
        max_size=40,
    ),
    begins_at=st.integers(0, 20),
    changes_max=st.integers(1, 50),
    data=st.data(),
)
def test_what_held_at_a_cut_is_told_or_it_is_said_that_it_is_not_known(
    steps: list[tuple[str, str, int]], begins_at: int, changes_max: int, data: st.DataObject
) -> None:
    """A caller that asks now and then, each time about a newer cut, gets all versions as of the last one."""
    every, table = Every(), TransactionTable()
    every.states.append((0, {}))
    history: AppVersionHistory | None = None
    known_versions: dict[str, int] = {}
    told_offset = told_cut = -1
    for number, step in enumerate(steps):
        record = play(every, step)
        table.apply(record)
        if number == begins_at or (history is None and number > begins_at):
            history = AppVersionHistory(table, every.offset, changes_max)
        elif history is not None:
            history.apply(record, every.offset)
        if history is None or not data.draw(st.booleans()):
            continue
        cut = data.draw(st.integers(min(told_cut, every.next_index - 1), every.next_index - 1))
        found = history.at_cut(cut, told_offset, every.offset)
        if found is None:
            assert cut < every.next_index - 1, "the current versions are known"
            continue
        known_versions = {} if found.is_whole else known_versions
        known_versions.update(found.versions)
        told_offset, told_cut = found.next_offset, cut
        expected = every.at_cut(cut)
        assert {name: version for name, version in known_versions.items() if version >= 0} == expected


def test_a_cut_before_the_memory_and_one_to_come_are_not_known() -> None:
    table = TransactionTable()
    table.apply(CommitIndexRecord(next_commit_index=5))
    table.apply(TransactionRecord(transactional_id="x", producer_id=1, app_version=3))
    history = AppVersionHistory(table, 10)
    assert [history.at_cut(cut, -1, 10) is None for cut in (3, 4, 5)] == [True, False, True]
    assert history.at_cut(4, -1, 10) == VersionsAtCut({"x": 3}, True, 10)


def test_the_oldest_changes_are_forgotten() -> None:
    history = AppVersionHistory(TransactionTable(), 0, changes_max=2)
    for index in range(4):
        history.apply(
            TransactionRecord(transactional_id="x", app_version=index, commit_index=index), index + 1
        )
    assert [history.at_cut(cut, -1, 4) is None for cut in range(-1, 4)] == [True, True, False, False, False]
    assert history.at_cut(2, 1, 4) == VersionsAtCut({"x": 2}, True, 3), "the change after 1 is forgotten"
    assert history.at_cut(2, 2, 4) == VersionsAtCut({"x": 2}, False, 3)


def test_the_controller_keeps_it_through_commits_deletions_and_snapshots() -> None:
    quorum = Transactions()
    versions = []
    for version in (3, 7):
        who = quorum.begin()
        quorum.add(who, quorum.places(0))
        quorum.end(who, version=version)
        quorum.write_markers()
        versions.append(quorum.machine.image.transactions.next_commit_index - 1)
    machine = quorum.machine
    for cut, version in zip(versions, (3, 7), strict=True):
        found = machine.app_versions.at_cut(cut, -1, machine.image.offset)
        assert found is not None
        assert found.versions == {"x": version}
    restored = Controller()
    restored.restore(list(machine.snapshot()))
    assert restored.app_versions.at_cut(versions[0], -1, restored.image.offset) is None
    known = restored.image.offset
    for controller in (quorum.machine, restored):
        assert controller.app_versions.at_cut(versions[1], -1, controller.image.offset) == VersionsAtCut(
            {"x": 7}, True, known
        )
    quorum.apply(DeleteTransactionalId(transactional_id="x"))
    found = machine.app_versions.at_cut(versions[1], known, machine.image.offset)
    assert found == VersionsAtCut({"x": -1}, False, machine.image.offset)


def test_many_versions_are_told_in_pages_and_another_leader_begins_anew() -> None:
    table = TransactionTable()
    for number in range(2 * LISTED_MAX + 1):
        table.apply(
            TransactionRecord(transactional_id=f"id-{number}", producer_id=number, app_version=number)
        )
    history = AppVersionHistory(table, 50)
    answers = AppVersionAnswers()

    def ask(question: int, position: int) -> AppVersionsTold:
        return answers.answer(
            1, AskAppVersions(question=question, listing=7, position=position, cut=-1), history, 50
        )

    found, question, position = {}, 7, 0
    while position >= 0:
        page = ask(question, position)
        assert page.is_whole
        assert page.next_offset == 50
        found |= {version.transactional_id: version.app_version for version in page.versions}
        question, position = question + 1, page.position
    assert question == 10
    assert found == {f"id-{number}": number for number in range(2 * LISTED_MAX + 1)}
    assert ask(20, LISTED_MAX).began_elsewhere
    assert answers.answer(1, AskAppVersions(question=3, listing=3, cut=4), history, 50).is_unknown
