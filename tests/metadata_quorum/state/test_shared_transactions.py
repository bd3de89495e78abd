"""Transactions of many writers, and application versions, command by command."""

from __future__ import annotations

import pytest

from ottla.metadata_quorum.state import transaction_decisions
from ottla.metadata_quorum.state.controller import Controller
from ottla.protocol.cluster.transaction_table import Phase
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import transaction_commands as t
from ottla.protocol.messages.command import PlainResult

from .transactional import Transactions, identity


def test_the_owner_chooses_whose_records_count() -> None:
    cluster = Transactions()
    owner = cluster.begin()
    cluster.add(owner, cluster.places(0))
    writer, other = identity(cluster.join(owner)), identity(cluster.join(owner))
    assert len({owner[0], writer[0], other[0]}) == 3
    cluster.add(writer, cluster.places(0, 1))
    cluster.add(other, cluster.places(1))
    cluster.check()
    cluster.end(owner, writers=[writer])
    chosen = {writer.producer_id for writer in cluster.state().writers.values() if writer.committed}
    assert chosen == {owner[0], writer[0]}
    cluster.check()
    cluster.write_markers()
    assert cluster.state().phase is Phase.COMPLETE_COMMIT
    cluster.check()


def test_a_producer_id_of_a_writer_is_used_again_under_its_next_epoch() -> None:
    cluster = Transactions()
    owner = cluster.begin()
    cluster.add(owner, cluster.places(0))
    writer = identity(cluster.join(owner))
    owner = identity(cluster.end(owner, writers=[writer]))
    cluster.write_markers()
    cluster.add(owner, cluster.places(0))
    assert identity(cluster.join(owner)) == (writer[0], writer[1] + 1)
    cluster.check()


@pytest.mark.parametrize("wrong", ["unknown", "old epoch"])
def test_a_commit_that_names_a_writer_wrongly_decides_nothing(wrong: str) -> None:
    cluster = Transactions()
    owner = cluster.begin()
    cluster.add(owner, cluster.places(0))
    writer = identity(cluster.join(owner))
    named = (writer[0] + 1, 0) if wrong == "unknown" else (writer[0], writer[1] - 1)
    refused = cluster.end(owner, writers=[writer, named], version=3)
    assert refused.error_code == ErrorCode.INVALID_TXN_STATE
    assert (cluster.state().phase, cluster.state().app_version) == (Phase.ONGOING, -1)


def test_nobody_joins_what_is_over() -> None:
    cluster = Transactions()
    owner = cluster.begin()
    cluster.add(owner, cluster.places(0))
    cluster.end(owner)
    late = cluster.join(owner, number=1)
    assert late.error_code == ErrorCode.INVALID_TXN_STATE
    assert cluster.join(owner, number=0).error_code == ErrorCode.INVALID_TXN_STATE


def test_an_application_version_is_committed_once() -> None:
    cluster = Transactions()
    owner = cluster.begin()
    cluster.add(owner, cluster.places(0))
    ended = cluster.end(owner, version=5)
    assert not ended.was_committed
    cluster.write_markers()
    owner = identity(ended)
    cluster.add(owner, cluster.places(0))
    again = cluster.end(owner, version=5)
    assert again.was_committed
    assert cluster.state().phase is Phase.PREPARE_ABORT, "its current writes do not count"
    cluster.write_markers()
    assert cluster.init().app_version == 5


def test_an_aborted_version_was_not_committed() -> None:
    cluster = Transactions()
    owner = cluster.begin()
    cluster.add(owner, cluster.places(0))
    cluster.end(owner, commits=False, version=5)
    cluster.write_markers()
    assert cluster.init().app_version == -1


def test_a_commit_of_an_old_version_whose_answer_was_lost_is_answered_again() -> None:
    cluster = Transactions()
    owner = cluster.begin()
    cluster.add(owner, cluster.places(0))
    first = cluster.end(owner, version=5)
    assert cluster.end(owner, version=5) == first, "repeated, not an old version"
    cluster.write_markers()
    owner = identity(first)
    cluster.add(owner, cluster.places(0))
    second = cluster.end(owner, version=5)
    assert second.was_committed
    for _ in range(2):
        assert cluster.end(owner, version=5) == second
        cluster.write_markers()
    assert cluster.end(owner, version=6).error_code == ErrorCode.PRODUCER_FENCED, (
        "this was never asked before"
    )
    assert (first.commit_index, second.commit_index) == (0, 1)


def test_a_commit_that_names_a_transaction_ends_no_other() -> None:
    cluster = Transactions()
    owner = cluster.begin()
    cluster.add(owner, ())
    owner = identity(cluster.end(owner, number=1, version=1))
    for number in (0, 1, 2):
        late = cluster.end(owner, number=number, version=2)
        assert late.error_code == ErrorCode.INVALID_TXN_STATE
    assert (cluster.state().number, cluster.state().app_version) == (1, 1)
    assert cluster.end(owner, version=2).number == 2, "an empty transaction that needed no beginning"


def test_a_writer_that_wrote_nothing_may_be_chosen_or_not() -> None:
    cluster = Transactions()
    owner = cluster.begin()
    cluster.add(owner, ())
    writer, _ = identity(cluster.join(owner)), identity(cluster.join(owner))
    assert cluster.end(owner, writers=[writer]).commit_index == 0
    assert cluster.state().phase is Phase.COMPLETE_COMMIT, "no marker is missing anywhere"
    cluster.check()


def test_only_the_owner_begins() -> None:
    cluster = Transactions()
    owner = cluster.begin()
    assert cluster.add(owner, ()).number == cluster.add(owner, ()).number == 1
    writer = identity(cluster.join(owner))
    assert cluster.add(writer, ()).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert cluster.add(writer, cluster.places(0)).error_code == ErrorCode.NONE


def test_what_writers_have_written_is_aborted_when_the_time_is_over() -> None:
    cluster = Transactions()
    owner = cluster.begin()
    cluster.add(owner, ())
    writer = identity(cluster.join(owner))
    cluster.add(writer, cluster.places(0, 1))
    due = t.ExpireTransactions(transactions=[t.OpenTransaction(transactional_id="x", number=1)])
    cluster.do(due, PlainResult)
    state = cluster.state()
    assert state.phase is Phase.PREPARE_ABORT
    assert not any(joined.committed for joined in state.writers.values())
    assert cluster.add(writer, cluster.places(2)).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert cluster.join(owner).error_code == ErrorCode.INVALID_TXN_STATE
    cluster.write_markers()
    assert cluster.add(writer, cluster.places(2)).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert cluster.end(owner, writers=[writer], version=1).error_code != ErrorCode.NONE
    assert cluster.state().app_version == -1
    cluster.check()


def test_a_writer_of_an_earlier_transaction_is_fenced_by_who_has_its_producer_id_now() -> None:
    cluster = Transactions()
    owner = cluster.begin()
    cluster.add(owner, ())
    former = identity(cluster.join(owner))
    owner = identity(cluster.end(owner))
    cluster.add(owner, ())
    writer = identity(cluster.join(owner))
    assert writer == (former[0], former[1] + 1)
    assert cluster.add(former, cluster.places(0)).error_code == ErrorCode.PRODUCER_FENCED
    assert cluster.end(owner, writers=[former]).error_code == ErrorCode.INVALID_TXN_STATE
    assert cluster.end(owner, writers=[writer]).error_code == ErrorCode.NONE


def test_there_is_a_limit_to_writers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_decisions, "WRITERS_MAX", 3)
    cluster = Transactions()
    owner = cluster.begin()
    cluster.add(owner, ())
    for _ in range(2):
        identity(cluster.join(owner))
    refused = cluster.join(owner)
    assert (refused.error_code, "3 are not" in refused.error_message) == (ErrorCode.INVALID_TXN_STATE, True)


def test_a_node_that_was_restored_gives_out_the_same_producer_ids() -> None:
    """The next id of the pool depends on its order, which a snapshot must contain."""
    nodes = [Transactions(), Transactions()]
    found = []
    for restored, cluster in enumerate(nodes):
        owner = cluster.begin()
        given = []
        for joins in (4, 2, 5, 3):
            cluster.add(owner, ())
            given += [identity(cluster.join(owner)) for _ in range(joins)]
            if restored:
                machine = Controller()
                machine.restore(cluster.machine.snapshot())
                cluster.machine.adopt(machine)
            owner = identity(cluster.end(owner))
        assert len({producer_id for producer_id, _ in given}) == 5
        found.append(given)
    assert found[0] == found[1]
