"""A producer whose transaction the cluster has aborted goes on (KIP-588, KIP-360); a replaced producer does not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.metadata_quorum.state.controller import Controller
from ottla.metadata_quorum.state.transaction_decisions import EPOCH_LAST
from ottla.protocol.cluster.transaction_table import Phase, Recovery, TransactionTable, transaction_record
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import transaction_commands as t
from ottla.protocol.messages.command import PlainResult
from ottla.protocol.messages.metadata_records import decode_record, encode_record
from ottla.protocol.messages.transaction_records import TransactionRecord

from .harness import assigned
from .transactional import Identity, Transactions, identity

ABORTED, FENCED = ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.PRODUCER_FENCED


def expires(cluster: Transactions) -> None:
    due = t.OpenTransaction(transactional_id="x", number=cluster.state().number)
    cluster.do(t.ExpireTransactions(transactions=[due]), PlainResult)


def operator_aborts(cluster: Transactions) -> None:
    cluster.do(t.AbortTransaction(transactional_id="x"), PlainResult)


def records_are_lost(cluster: Transactions) -> None:
    cluster.create(assigned("lost", [1, 2]))
    cluster.add(
        (cluster.state().producer_id, cluster.state().producer_epoch), cluster.places(0, topic="lost")
    )
    cluster.fence(2)
    cluster.fence(1)
    cluster.unfence(2)
    cluster.elect_uncleanly("lost")
    cluster.unfence(1)


MISHAPS = pytest.mark.parametrize("mishap", [expires, operator_aborts, records_are_lost])


def aborted(cluster: Transactions, mishap: Callable[[Transactions], None] = expires) -> Identity:
    """Return a producer whose open transaction the cluster aborted."""
    who = cluster.begin()
    cluster.add(who, cluster.places(0, 1))
    mishap(cluster)
    assert cluster.state().phase is Phase.PREPARE_ABORT
    return who


@MISHAPS
def test_an_abort_is_answered_with_the_next_epoch(mishap: Callable[[Transactions], None]) -> None:
    cluster = Transactions()
    who = aborted(cluster, mishap)
    number = cluster.state().number
    for _ in range(2):
        ended = cluster.end(who, commits=False)
        assert (identity(ended), ended.number) == ((who[0], 1), number), "as the client's own abort is"
        assert identity(cluster.end(who, commits=False, bumps=False)) == (who[0], 1)
        cluster.write_markers()
    cluster.add((who[0], 1), cluster.places(2))
    assert identity(cluster.end((who[0], 1))) == (who[0], 2)
    assert cluster.end(who, commits=False).error_code == FENCED, "that one is over"
    cluster.check()


@MISHAPS
def test_initializing_with_what_one_has_is_answered_with_the_next_epoch(
    mishap: Callable[[Transactions], None],
) -> None:
    cluster = Transactions()
    who = aborted(cluster, mishap)
    assert cluster.init(known=who).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    cluster.write_markers()
    for _ in range(2):
        assert identity(cluster.init(known=who)) == (who[0], 1)
    assert cluster.state().phase is Phase.EMPTY
    cluster.add((who[0], 1), cluster.places(2))
    assert cluster.init(known=who).error_code == FENCED, "that would abort what it has begun since"
    assert cluster.end((who[0], 1), bumps=False).error_code == ErrorCode.NONE
    cluster.write_markers()
    assert cluster.init(known=who).error_code == FENCED
    cluster.check()


def test_nothing_under_the_former_epoch_counts() -> None:
    """Rule T6: an old client must not add a partition after an unnoticed abort, and then commit half."""
    cluster = Transactions()
    who = aborted(cluster)
    for _ in range(2):
        assert cluster.add(who, cluster.places(2)).error_code == ABORTED
        assert cluster.add(who, ()).error_code == ABORTED
        for bumps in (True, False):
            assert cluster.end(who, bumps=bumps).error_code == ABORTED
        cluster.write_markers()
    assert (cluster.state().phase, cluster.state().number) == (Phase.COMPLETE_ABORT, 1)
    cluster.add((who[0], 1), cluster.places(3))
    assert cluster.add(who, cluster.places(2)).error_code == FENCED
    for commits in (True, False):
        for bumps in (True, False):
            assert cluster.end(who, commits=commits, bumps=bumps).error_code == FENCED
    assert cluster.state().phase is Phase.ONGOING
    cluster.check()


@pytest.mark.parametrize("completes_first", [True, False])
def test_whoever_was_replaced_stays_fenced(*, completes_first: bool) -> None:
    cluster = Transactions()
    who = aborted(cluster)
    if completes_first:
        cluster.write_markers()
        new = cluster.begin()
    else:
        assert cluster.init().error_code == ErrorCode.CONCURRENT_TRANSACTIONS
        cluster.write_markers()
        new = cluster.begin()
    assert new == (who[0], 2)
    assert cluster.init(known=who).error_code == FENCED
    assert cluster.init(known=(who[0], 1)).error_code == FENCED
    for bumps in (True, False):
        assert cluster.end(who, commits=False, bumps=bumps).error_code == FENCED
    assert cluster.add(who, cluster.places(0)).error_code == FENCED


def test_a_client_that_cannot_ask_for_the_next_epoch_is_fenced() -> None:
    cluster = Transactions()
    who = identity(cluster.init(recovers=False))
    cluster.add(who, cluster.places(0))
    expires(cluster)
    cluster.write_markers()
    assert cluster.add(who, cluster.places(0)).error_code == FENCED
    for commits in (True, False):
        assert cluster.end(who, commits=commits, bumps=False).error_code == FENCED


def test_who_initializes_again_while_its_transaction_is_open_goes_on() -> None:
    """KIP-360: the producer has aborted that transaction itself."""
    cluster = Transactions()
    who = cluster.begin()
    cluster.add(who, cluster.places(0))
    for _ in range(2):
        assert cluster.init(known=who).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert (cluster.state().phase, cluster.state().producer_epoch) == (Phase.PREPARE_ABORT, 1)
    cluster.write_markers()
    assert identity(cluster.init(known=who)) == (who[0], 1)
    assert cluster.end(who, commits=False).error_code == FENCED
    cluster.check()


@pytest.mark.parametrize("by_ending", [True, False])
def test_the_last_epoch_is_followed_by_a_new_producer_id(*, by_ending: bool) -> None:
    cluster = Transactions()
    who = cluster.begin()
    cluster.state().producer_epoch = EPOCH_LAST
    last = (who[0], EPOCH_LAST)
    cluster.add(last, cluster.places(0))
    expires(cluster)
    assert cluster.add(last, cluster.places(1)).error_code == ABORTED
    if by_ending:
        new = identity(cluster.end(last, commits=False))
        cluster.write_markers()
    else:
        cluster.write_markers()
        new = identity(cluster.init(known=last))
    assert new[0] != who[0]
    assert new[1] == 0
    cluster.add(new, cluster.places(1))
    assert cluster.end(new).error_code == ErrorCode.NONE
    cluster.machine.check()


def test_a_snapshot_tells_who_may_go_on() -> None:
    cluster = Transactions()
    who = aborted(cluster)
    machine = Controller()
    machine.restore(cluster.machine.snapshot())
    cluster.machine.adopt(machine)
    assert cluster.state().recovery is Recovery.OFFERED
    assert cluster.add(who, cluster.places(1)).error_code == ABORTED
    assert identity(cluster.end(who, commits=False)) == (who[0], 1)


def test_what_was_written_before_there_was_a_way_to_recover_is_read() -> None:
    """Such a record does not have the field, and a node of that time skips the field."""
    cluster = Transactions()
    aborted(cluster)
    record = transaction_record(cluster.state())
    assert decode_record(encode_record(record)) == record
    record.recovery = 0
    old = encode_record(record)
    assert len(encode_record(transaction_record(cluster.state()))) > len(old)
    table = TransactionTable()
    read = decode_record(old)
    assert isinstance(read, TransactionRecord)
    table.apply(read)
    assert table.by_id["x"].recovery is Recovery.NEVER
    assert not table.by_id["x"].may_recover(record.producer_id, 0)
