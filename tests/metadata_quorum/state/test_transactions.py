"""The states of a transactional id, command by command; rules T4 to T19 of docs/TRANSACTIONS.md."""

from __future__ import annotations

import pytest

from ottla.metadata_quorum.command_intake import refusal_for_room
from ottla.metadata_quorum.state.controller import Controller
from ottla.metadata_quorum.state.transaction_decisions import EPOCH_LAST
from ottla.protocol.cluster.transaction_table import Phase
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import transaction_commands as t
from ottla.protocol.messages.command import PlainResult
from ottla.protocol.messages.quorum_commands import decode_result
from ottla.protocol.messages.topic_commands import DeleteTopics, DeleteTopicsResult

from .transactional import Transactions, identity


def test_the_first_use_gives_a_producer_id_of_its_own() -> None:
    cluster = Transactions()
    (producer_id, one_epoch), (other, other_epoch) = cluster.begin("x"), cluster.begin("y")
    assert producer_id != other
    assert (one_epoch, other_epoch) == (0, 0)
    assert cluster.begin("x") == (producer_id, 1), "and each later one fences those before"
    cluster.check()


def test_a_new_transactional_id_is_refused_where_there_is_no_room() -> None:
    """The id's command enters the log as a different one, which changes nothing and is refused by every version."""
    cluster = Transactions()
    known = {cluster.begin("x"), cluster.begin("y")}
    before = dict(cluster.machine.image.transactions.by_id)
    commands = {
        name: t.InitTransactionalId(transactional_id=name, timeout_ms=1000, origin=cluster.origin(1))
        for name in ("x", "new")
    }
    answers = {
        name: refusal_for_room(cluster.machine.image, command, ids_max=2)
        for name, command in commands.items()
    }
    assert answers["x"] is None, "one that is there goes on"
    assert answers["new"] is not None
    assert answers["new"].error_code == ErrorCode.POLICY_VIOLATION
    applied = cluster.apply(commands["new"])
    assert decode_result(commands["new"], applied.result).error_code != 0
    assert (applied.changes, cluster.machine.image.transactions.by_id) == ((), before)
    assert refusal_for_room(cluster.machine.image, commands["x"], ids_max=3) is None
    assert len(known) == 2
    cluster.check()


def test_a_transaction_over_two_partitions() -> None:
    cluster = Transactions()
    who = cluster.begin()
    assert cluster.add(who, cluster.places(0)).number == 1
    assert cluster.add(who, cluster.places(0, 1)).number == 1
    cluster.check()
    ended = cluster.end(who)
    assert identity(ended) == (who[0], who[1] + 1)
    assert (cluster.state().phase, cluster.state().commit_index) == (Phase.PREPARE_COMMIT, 0)
    cluster.check()
    cluster.write_markers(cluster.places(1))
    assert cluster.state().phase is Phase.PREPARE_COMMIT, "one partition has no marker yet"
    cluster.write_markers(cluster.places(0))
    assert cluster.state().phase is Phase.COMPLETE_COMMIT
    cluster.check()
    assert cluster.add(identity(ended), cluster.places(2)).number == 2
    assert cluster.state().commit_index == -1


def test_a_transaction_without_partitions_is_complete_at_once() -> None:
    cluster = Transactions()
    who = cluster.begin()
    cluster.add(who, ())
    cluster.end(who)
    assert cluster.state().phase is Phase.COMPLETE_COMMIT
    cluster.check()


def test_a_client_that_takes_up_epochs_may_end_what_it_never_began() -> None:
    cluster = Transactions()
    who = cluster.begin()
    first = identity(cluster.end(who, commits=False))
    assert first == (who[0], 1)
    assert identity(cluster.end(first, commits=False)) == (who[0], 2)
    assert cluster.state().number == 2


@pytest.mark.parametrize("bumps", [True, False])
@pytest.mark.parametrize("commits", [True, False])
def test_ending_again_is_answered_again(*, bumps: bool, commits: bool) -> None:
    cluster = Transactions()
    who = cluster.begin()
    cluster.add(who, cluster.places(0))
    ended = cluster.end(who, commits=commits, bumps=bumps)
    for _ in range(2):
        before = cluster.machine.image.offset
        assert cluster.end(who, commits=commits, bumps=bumps) == ended
        other = cluster.end(who, commits=not commits, bumps=bumps)
        refused = ErrorCode.PRODUCER_FENCED if bumps else ErrorCode.INVALID_TXN_STATE
        assert other.error_code == refused, "the outcome never changes"
        assert cluster.machine.image.offset == before
        cluster.write_markers()
    cluster.check()


@pytest.mark.parametrize("bumps", [True, False])
def test_who_asks_for_the_end_again_by_way_of_another_broker_finds_that_one_informed(*, bumps: bool) -> None:
    """Broker 2 knows of the transaction because of one partition, and not that the other one is settled."""
    cluster = Transactions()
    who = cluster.begin()
    cluster.add(who, cluster.places(1, 2))
    ended = cluster.end(who, bumps=bumps)
    cluster.write_markers(cluster.places(1))
    for settled in (False, True):
        if settled:
            cluster.write_markers(cluster.places(2))
        assert cluster.end(who, bumps=bumps, broker=2) == ended
        known = cluster.images[2].transactions.by_id["x"]
        assert (known.phase, known.lacking) == (cluster.state().phase, cluster.state().lacking)
        assert known.phase.is_over == settled
    cluster.check()


def test_the_next_one_waits_until_all_markers_are_written() -> None:
    cluster = Transactions()
    who = cluster.begin()
    cluster.add(who, cluster.places(0, 1))
    who = identity(cluster.end(who))
    busy = ErrorCode.CONCURRENT_TRANSACTIONS
    assert cluster.add(who, cluster.places(2)).error_code == busy
    assert cluster.init(known=who).error_code == busy
    assert cluster.init().error_code == busy
    assert cluster.end(who).error_code == busy
    cluster.write_markers()
    assert cluster.add(who, cluster.places(2)).error_code == ErrorCode.NONE


def test_another_producer_aborts_what_it_finds_open() -> None:
    cluster = Transactions()
    old = cluster.begin()
    cluster.add(old, cluster.places(0))
    assert cluster.init().error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert cluster.state().phase is Phase.PREPARE_ABORT
    epoch = cluster.state().producer_epoch
    assert cluster.init().error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert cluster.state().producer_epoch == epoch, "asking again raises nothing again"
    fenced = ErrorCode.PRODUCER_FENCED
    assert cluster.end(old).error_code == fenced
    assert cluster.end(old, bumps=False).error_code == fenced
    assert cluster.add(old, cluster.places(1)).error_code == fenced
    cluster.write_markers()
    assert cluster.init(known=old).error_code == fenced
    new = cluster.begin()
    assert new == (old[0], 2)
    cluster.check()


def test_a_zombie_that_initializes_again_aborts_nothing() -> None:
    cluster = Transactions()
    zombie = cluster.begin()
    present = cluster.begin()
    cluster.add(present, cluster.places(0))
    assert cluster.init(known=zombie).error_code == ErrorCode.PRODUCER_FENCED
    assert cluster.state().phase is Phase.ONGOING


def test_initializing_with_what_one_has_is_answered_again() -> None:
    """KIP-360: the answer may have been lost."""
    cluster = Transactions()
    who = cluster.begin()
    raised = identity(cluster.init(known=who))
    assert raised == (who[0], 1)
    assert identity(cluster.init(known=who)) == raised
    assert identity(cluster.init(known=raised)) == (who[0], 2)
    assert cluster.init(known=who).error_code == ErrorCode.PRODUCER_FENCED


def test_epochs_run_out() -> None:
    cluster = Transactions()
    who = cluster.begin()
    cluster.state().producer_epoch = EPOCH_LAST
    last = (who[0], EPOCH_LAST)
    cluster.add(last, cluster.places(0))
    ended = cluster.end(last)
    new = identity(ended)
    assert new[0] != who[0]
    assert new[1] == 0
    assert cluster.end(last) == ended, "asked again by the former identity"
    (writer,) = cluster.state().writers.values()
    assert (writer.producer_id, cluster.state().marker_epoch(writer)) == (who[0], EPOCH_LAST + 1)
    cluster.check()
    cluster.write_markers()
    assert cluster.state().phase is Phase.COMPLETE_COMMIT
    assert cluster.add(new, cluster.places(0)).error_code == ErrorCode.NONE
    cluster.check()


@pytest.mark.parametrize("epoch", [3, EPOCH_LAST])
def test_a_commit_is_answered_again_for_who_takes_up_no_epochs_any_more(epoch: int) -> None:
    """Flink's job has committed, is restored from the previous checkpoint, and commits with an older EndTxn."""
    cluster = Transactions()
    producer_id, _ = cluster.begin()
    cluster.state().producer_epoch = epoch
    restored = (producer_id, epoch)
    cluster.add(restored, cluster.places(0))
    new = identity(cluster.end(restored))
    before = cluster.machine.image.offset
    assert cluster.end(restored, bumps=False).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert cluster.machine.image.offset == before
    cluster.write_markers()
    before = cluster.machine.image.offset
    for broker in (1, 2):
        answered = cluster.end(restored, bumps=False, broker=broker)
        assert (answered.error_code, identity(answered)) == (ErrorCode.NONE, restored)
        assert answered.commit_index == cluster.state().commit_index
    assert cluster.end(restored, commits=False, bumps=False).error_code != ErrorCode.NONE
    assert cluster.end((producer_id, epoch - 1), bumps=False).error_code != ErrorCode.NONE
    assert cluster.machine.image.offset == before
    cluster.add(new, cluster.places(0))
    assert cluster.end(restored, bumps=False).error_code != ErrorCode.NONE
    assert cluster.state().phase is Phase.ONGOING, "later writes are not committed with it"
    cluster.check()


@pytest.mark.parametrize("commits", [True, False])
def test_what_was_aborted_is_not_told_to_be_committed(*, commits: bool) -> None:
    cluster = Transactions()
    who = cluster.begin()
    cluster.add(who, cluster.places(0))
    cluster.end(who, commits=False)
    cluster.write_markers()
    assert cluster.end(who, commits=commits, bumps=False).error_code == ErrorCode.PRODUCER_FENCED


def test_a_fenced_epoch_at_the_end_leads_to_a_new_producer_id() -> None:
    cluster = Transactions()
    who = cluster.begin()
    cluster.state().producer_epoch = EPOCH_LAST
    cluster.add((who[0], EPOCH_LAST), cluster.places(0))
    cluster.init()
    assert cluster.state().producer_epoch == EPOCH_LAST + 1
    cluster.write_markers()
    new = cluster.begin()
    assert new[0] != who[0]
    assert new[1] == 0


def test_nothing_begins_under_the_epoch_that_fenced_the_last_one() -> None:
    """There is no higher epoch. No number in a record could fence a transaction that is open under it."""
    cluster = Transactions()
    who = cluster.begin()
    cluster.state().producer_epoch = EPOCH_LAST
    cluster.add((who[0], EPOCH_LAST), cluster.places(0))
    cluster.init()
    cluster.write_markers()
    guessed = (who[0], EPOCH_LAST + 1)
    assert cluster.add(guessed, cluster.places(0)).error_code == ErrorCode.PRODUCER_FENCED
    assert cluster.state().phase is Phase.COMPLETE_ABORT
    assert identity(cluster.init())[1] == 0


def test_what_nobody_owns_begins_under_a_new_producer_id_once_its_epochs_have_run_out() -> None:
    cluster = Transactions()
    first = cluster.find_or_begin()
    cluster.state().producer_epoch = EPOCH_LAST
    for _ in range(3):
        opened = t.OpenTransaction(transactional_id="x", number=cluster.state().number)
        cluster.do(t.ExpireTransactions(transactions=[opened]), PlainResult)
        found = cluster.find_or_begin()
    assert found.producer_id != first.producer_id
    assert found.producer_epoch == 2, "one for each of the others"
    assert (
        cluster.end((found.producer_id, found.producer_epoch), number=found.number).error_code
        == ErrorCode.NONE
    )
    assert list(cluster.machine.snapshot())


def test_unknown_ids_topics_and_numbers_are_named() -> None:
    cluster = Transactions()
    unknown = cluster.add((1, 0), cluster.places(0), name="nobody")
    assert unknown.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert "'nobody'" in unknown.error_message
    who = cluster.begin()
    foreign = cluster.add((who[0] + 100, 0), cluster.places(0))
    assert foreign.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    missing = cluster.add(who, {(b"n" * 16, 0)})
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert cluster.state().phase is Phase.EMPTY, "nothing has begun"
    assert cluster.end(who, bumps=False).error_code == ErrorCode.INVALID_TXN_STATE
    cluster.add(who, cluster.places(0))
    wrong = cluster.end(who, number=7)
    assert wrong.error_code == ErrorCode.INVALID_TXN_STATE
    assert cluster.state().phase is Phase.ONGOING


# Delayed requests


def test_what_was_delayed_on_an_old_connection_does_not_end_the_next_transaction() -> None:
    """KAFKA-17754: the client keeps its epoch, so only the connection distinguishes the two."""
    cluster = Transactions()
    who = cluster.begin()
    cluster.add(who, cluster.places(0))
    delayed = t.EndTransaction(
        transactional_id="x",
        producer_id=who[0],
        producer_epoch=who[1],
        commits=True,
        origin=cluster.origin(2),
    )
    cluster.end(who, bumps=False)
    cluster.write_markers()
    cluster.add(who, cluster.places(1))
    refused = cluster.do(delayed, t.EndTransactionResult)
    assert refused.error_code == ErrorCode.NETWORK_EXCEPTION
    assert cluster.state().phase is Phase.ONGOING
    assert cluster.end(who, bumps=False).error_code == ErrorCode.NONE


def test_requests_of_one_connection_follow_each_other() -> None:
    cluster = Transactions()
    origin = t.ClientOrigin(broker_id=1, broker_epoch=cluster.epoch(1), connection=5, birth=0)
    init = t.InitTransactionalId(transactional_id="x", timeout_ms=1, origin=origin)
    who = identity(cluster.do(init, t.InitTransactionalIdResult))
    end = t.EndTransaction(
        transactional_id="x", producer_id=who[0], producer_epoch=who[1], bumps_epoch=True, origin=origin
    )
    assert cluster.do(end, t.EndTransactionResult).error_code == ErrorCode.NONE


# Timeouts and operators


def test_what_is_open_for_too_long_is_aborted_and_its_producer_cannot_commit_it() -> None:
    cluster = Transactions()
    who = cluster.begin()
    cluster.add(who, cluster.places(0, 1))
    expired = t.ExpireTransactions(transactions=[t.OpenTransaction(transactional_id="x", number=1)])
    cluster.do(expired, PlainResult)
    assert (cluster.state().phase, cluster.state().producer_epoch) == (Phase.PREPARE_ABORT, 1)
    cluster.do(expired, PlainResult)
    assert cluster.state().producer_epoch == 1
    assert cluster.end(who).error_code == ErrorCode.TRANSACTION_ABORTABLE
    cluster.check()


def test_an_expiry_that_comes_late_meets_another_transaction() -> None:
    cluster = Transactions()
    who = cluster.begin()
    cluster.add(who, cluster.places(0))
    who = identity(cluster.end(who))
    cluster.write_markers()
    cluster.add(who, cluster.places(0))
    expired = t.ExpireTransactions(transactions=[t.OpenTransaction(transactional_id="x", number=1)])
    cluster.do(expired, PlainResult)
    assert cluster.state().phase is Phase.ONGOING


def test_an_operator_aborts_an_open_transaction() -> None:
    cluster = Transactions()
    cluster.add(cluster.begin(), cluster.places(0))
    cluster.do(t.AbortTransaction(transactional_id="x"), PlainResult)
    assert cluster.state().phase is Phase.PREPARE_ABORT


def test_an_operator_aborts_the_transaction_that_was_looked_at() -> None:
    """A transaction that the producer has begun since is not aborted."""
    cluster = Transactions()
    who = cluster.begin()
    cluster.add(who, cluster.places(0))
    cluster.end(who, bumps=False)
    command = t.AbortTransaction(transactional_id="x", number=cluster.state().number)
    assert cluster.do(command, PlainResult).error_code == ErrorCode.INVALID_TXN_STATE, "it is committed"
    cluster.write_markers()
    cluster.add(who, cluster.places(0))
    assert cluster.do(command, PlainResult).error_code == ErrorCode.INVALID_TXN_STATE
    assert cluster.state().phase is Phase.ONGOING
    command.number = cluster.state().number
    for _ in range(2):
        assert cluster.do(command, PlainResult).error_code == ErrorCode.NONE
        assert cluster.state().phase is Phase.PREPARE_ABORT


def test_an_id_that_nobody_uses_is_forgotten_unless_it_is_busy() -> None:
    cluster = Transactions()
    who = cluster.begin()
    forget = t.ForgetTransactionalIds(
        transactions=[t.OpenTransaction(transactional_id="x", number=0)],
        unused_since_ms=cluster.state().updated_ms,
    )
    cluster.add(who, cluster.places(0))
    cluster.do(forget, PlainResult)
    assert "x" in cluster.machine.image.transactions.by_id
    cluster.end(who, commits=False)
    cluster.write_markers()
    forget.transactions[0].number = 1
    cluster.do(forget, PlainResult)
    assert "x" in cluster.machine.image.transactions.by_id, "its client has spoken since"
    forget.unused_since_ms = cluster.state().updated_ms
    cluster.do(forget, PlainResult)
    assert "x" not in cluster.machine.image.transactions.by_id
    assert cluster.machine.image.transactions.next_commit_index == 1, "an index is used once"
    cluster.check()


def test_an_id_with_an_application_version_is_kept() -> None:
    """A job that is replayed after weeks must not commit again."""
    cluster = Transactions()
    cluster.end(cluster.begin(), version=3)
    forget = t.ForgetTransactionalIds(
        transactions=[t.OpenTransaction(transactional_id="x", number=1)], unused_since_ms=2**62
    )
    cluster.do(forget, PlainResult)
    assert cluster.init().app_version == 3


@pytest.mark.parametrize("version", [-1, 3])
def test_a_deleted_id_is_as_if_it_had_never_been(version: int) -> None:
    cluster = Transactions()
    owner = cluster.begin()
    cluster.add(owner, cluster.places(0))
    writer = identity(cluster.join(owner))
    cluster.add(writer, cluster.places(1))
    owner = identity(cluster.end(owner, writers=[writer], version=version))
    cluster.write_markers()
    assert deleted(cluster) == ErrorCode.NONE
    for image in (cluster.machine.image, *cluster.images.values()):
        assert not image.transactions.by_id
        assert not image.transactions.by_producer
    for who in (owner, writer):
        assert cluster.add(who, cluster.places(0)).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert cluster.join(who, number=1).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert cluster.end(who).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert deleted(cluster) == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    anew = cluster.init()
    assert anew.producer_id not in (owner[0], writer[0])
    assert (anew.producer_epoch, anew.app_version) == (0, -1)
    assert cluster.init(known=owner).error_code == ErrorCode.PRODUCER_FENCED
    assert cluster.add(owner, cluster.places(0)).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert cluster.end(identity(anew), version=3).commit_index == 1, "an index is used once"
    cluster.check()


def test_an_id_is_not_deleted_before_its_transaction_is_complete() -> None:
    cluster = Transactions()
    owner = cluster.begin()
    cluster.add(owner, cluster.places(0, 1))
    refused = cluster.do(t.DeleteTransactionalId(transactional_id="x"), PlainResult)
    assert refused.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert "transaction 1 of 'x' is open: abort it first" in refused.error_message
    cluster.end(owner)
    cluster.write_markers(cluster.places(0))
    refused = cluster.do(t.DeleteTransactionalId(transactional_id="x"), PlainResult)
    assert refused.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert "lacks markers in 1 partitions" in refused.error_message
    assert cluster.state().phase is Phase.PREPARE_COMMIT
    cluster.write_markers()
    assert deleted(cluster) == ErrorCode.NONE
    cluster.check()


def test_the_rest_of_a_deleted_id_meets_the_next_of_its_name() -> None:
    """Pending commands, and a marker that is reported twice, concern an id that is gone."""
    cluster = Transactions()
    owner = cluster.begin()
    cluster.add(owner, cluster.places(0))
    cluster.end(owner, commits=False)
    (topic_id, index) = next(iter(cluster.places(0)))
    written = t.WrittenMarkers(
        topic_id=topic_id,
        partition=index,
        leader_epoch=cluster.machine.image.topics_by_id[topic_id].partitions[index].leader_epoch,
        writers=[t.WrittenMarker(producer_id=owner[0], number=1)],
    )
    report = t.ReportMarkers(broker_id=1, broker_epoch=cluster.epoch(1), partitions=[written])
    cluster.do(report, PlainResult)
    assert deleted(cluster) == ErrorCode.NONE
    next_owner = cluster.begin()
    cluster.add(next_owner, cluster.places(0))
    assert cluster.end(next_owner, bumps=False).number == 1, "its transactions are counted from zero"
    cluster.do(report, PlainResult)
    assert cluster.state().phase is Phase.PREPARE_COMMIT
    cluster.check()


def deleted(cluster: Transactions) -> int:
    return cluster.do(t.DeleteTransactionalId(transactional_id="x"), PlainResult).error_code


# Markers and partitions


def test_markers_of_another_leadership_do_not_count() -> None:
    cluster = Transactions()
    who = cluster.begin()
    cluster.add(who, cluster.places(0))
    cluster.end(who)
    cluster.write_markers(leader_epoch=7)
    assert cluster.state().phase is Phase.PREPARE_COMMIT
    cluster.fence(1)
    cluster.write_markers()
    assert cluster.state().phase is Phase.COMPLETE_COMMIT
    cluster.check()


def test_a_deleted_topic_is_waited_for_no_longer() -> None:
    cluster = Transactions()
    who = cluster.begin()
    cluster.add(who, cluster.places(0, 1))
    cluster.end(who)
    cluster.do(DeleteTopics(names=["t"]), DeleteTopicsResult)
    assert cluster.state().phase is Phase.COMPLETE_COMMIT
    cluster.check()


def test_a_partition_without_a_leader_keeps_it_undone_and_decided() -> None:
    cluster = Transactions()
    who = cluster.begin()
    cluster.add(who, cluster.places(0, 1))
    ended = cluster.end(who)
    cluster.fence(1)
    cluster.fence(2)
    cluster.write_markers()
    assert cluster.state().phase is Phase.PREPARE_COMMIT
    assert cluster.end(who) == ended
    cluster.unfence(1)
    cluster.unfence(2)
    cluster.write_markers()
    assert cluster.state().phase is Phase.COMPLETE_COMMIT


def test_a_replica_that_comes_in_between_is_told() -> None:
    cluster = Transactions()
    who = cluster.begin()
    cluster.add(who, cluster.places(0))
    assert not cluster.images[3].transactions.at(*cluster.places(0))
    cluster.move(0, [1, 3])
    assert cluster.images[3].transactions.at(*cluster.places(0))
    cluster.check()


def test_a_replica_that_comes_back_believes_nothing_that_was_settled_meanwhile() -> None:
    """The broker was not notified, since it owed no marker there.

    Otherwise it would write the marker again, after those of later transactions (seed 7927).
    """
    cluster = Transactions()
    who = cluster.begin()
    cluster.add(who, cluster.places(0))
    cluster.move(0, [1, 3])
    cluster.move(0, None)
    cluster.end(who)
    cluster.write_markers()
    assert cluster.state().phase is Phase.COMPLETE_COMMIT
    cluster.move(0, [1, 3])
    assert not cluster.images[3].transactions.at(*cluster.places(0))
    cluster.check()


def test_a_replica_that_came_in_between_learns_of_earlier_aborts_with_the_next_transaction() -> None:
    """If the broker leads after an unclean election, it must derive them from the committed part of
    its log (rule T11).
    """
    cluster = Transactions()
    who = cluster.begin()
    cluster.add(who, cluster.places(0))
    cluster.end(who, commits=False, bumps=False)
    cluster.write_markers()
    cluster.move(0, [1, 3])
    cluster.add(who, cluster.places(0))
    (place,) = cluster.places(0)
    assert cluster.images[3].transactions.by_id["x"].aborted == {place: 1}
    cluster.check()


def test_only_those_are_told_whom_it_concerns() -> None:
    cluster = Transactions()
    who = cluster.begin(broker=1)
    cluster.add(who, cluster.places(0), broker=1)
    assert "x" not in cluster.images[3].transactions.by_id
    cluster.add(who, cluster.places(1), broker=1)
    assert cluster.images[3].transactions.by_id["x"] == cluster.state()
    cluster.check()


# Snapshots


def test_a_snapshot_has_it_all() -> None:
    cluster = Transactions()
    for name in ("x", "y", "z"):
        owner = cluster.begin(name)
        cluster.add(owner, cluster.places(0, 1), name=name)
        writer = identity(cluster.join(owner, name))
        cluster.add(writer, cluster.places(2), name=name)
        if name != "z":
            cluster.end(owner, writers=[writer], name=name, version=4)
            cluster.write_markers(cluster.places(0))
        if name == "x":
            cluster.write_markers()
    machine = Controller()
    machine.restore(cluster.machine.snapshot())
    machine.check()
    assert machine.image.transactions == cluster.machine.image.transactions
    copy = cluster.machine.image.transactions.copy()
    copy.check()
    assert copy == cluster.machine.image.transactions
