"""Markers: written in the quorum's order, once, by the current leader; reported when they cannot be lost any more."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from ottla.dataplane.cluster.internal_topics import OFFSETS_TOPIC
from ottla.dataplane.replication.replica.partition import Partition
from ottla.dataplane.transactions import markers
from ottla.protocol.cluster.transaction_table import Phase, TransactionMetadata
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages import quorum_commands as q
from ottla.protocol.messages.command import Command
from ottla.protocol.messages.transaction_commands import ReportMarkers
from ottla.protocol.records.record import encode_batch
from ottla.protocol.records.record_batch import walk_batches
from ottla.protocol.wire.schema import Message
from tests.metadata_quorum.state.harness import assigned
from tests.metadata_quorum.state.transactional import identity

from .broker_beside_a_quorum import Beside, beside_a_quorum


async def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.001)


async def written(broker: Beside, name: str, *indexes: int) -> tuple[int, int]:
    """Return a transaction with a record in each of these partitions, not ended."""
    who = broker.quorum.begin(name)
    broker.quorum.add(who, broker.solo(*indexes), name)
    broker.catch_up()
    for index in indexes:
        await broker.produce(who, 0, index=index)
    return who


def decided(broker: Beside) -> int:
    """Return the number of a transaction in a partition of another leader: its marker is not written."""
    who = broker.quorum.begin()
    broker.quorum.add(who, broker.quorum.places(0, topic="pair"))
    broker.catch_up()
    number = broker.quorum.end(who).number
    broker.catch_up()
    return number


def markers_of(broker: Beside) -> list[int]:
    """Return the producer ids of the markers in partition 0, in the order of the log."""
    log = broker.partition().log
    offset, found = 0, []
    while offset < log.log_end_offset:
        piece = log.read(offset, 1 << 20, log.log_end_offset, at_least_one=True)
        data = piece.read()
        piece.release()
        for _, header in walk_batches(data):
            offset = header.next_offset
            if header.is_control:
                found.append(header.producer_id)
    return found


@pytest.mark.parametrize("commits", [True, False])
async def test_a_decision_becomes_a_marker_and_is_reported(tmp_path: Path, *, commits: bool) -> None:
    async with beside_a_quorum(tmp_path) as broker:
        who = await written(broker, "x", 0, 1)
        broker.quorum.end(who, commits=commits)
        broker.catch_up()
        for index in (0, 1):
            log = broker.partition(index=index).log
            assert (log.log_end_offset, dict(log.transactions.open)) == (2, {})
            assert log.transactions.first_unstable_offset(2) is None
            assert len(log.transactions.aborted(0, 2)) == (0 if commits else 1)
        await until(lambda: broker.quorum.state().phase.is_over)
        assert broker.quorum.state().phase is (Phase.COMPLETE_COMMIT if commits else Phase.COMPLETE_ABORT)


async def test_nothing_is_reported_that_could_still_be_lost(tmp_path: Path) -> None:
    """The leader dies with the marker, and the quorum would believe that the marker exists."""
    async with beside_a_quorum(tmp_path) as broker:
        who = broker.quorum.begin()
        broker.quorum.add(who, broker.quorum.places(0, topic="pair"))
        broker.catch_up()
        await broker.produce(who, 0, topic="pair")
        broker.quorum.end(who)
        broker.catch_up()
        pair = broker.partition("pair")
        assert pair.log.log_end_offset == 2
        for _ in range(20):
            await asyncio.sleep(0)
        assert broker.quorum.state().phase is Phase.PREPARE_COMMIT
        assert pair.log.transactions.last_stable_offset(pair.high_watermark) == 0
        pair.fetched_by(2, broker.quorum.epoch(2), 2)
        await until(lambda: broker.quorum.state().phase is Phase.COMPLETE_COMMIT)
        assert pair.log.transactions.last_stable_offset(pair.high_watermark) == 2


async def test_a_marker_outlives_a_shortage_of_replicas(tmp_path: Path) -> None:
    """Producers are answered that the outcome is unknown; the marker's writer goes on waiting."""
    async with beside_a_quorum(tmp_path) as broker:
        who = broker.quorum.begin()
        broker.quorum.add(who, broker.quorum.places(0, topic="pair"))
        broker.catch_up()
        await broker.produce(who, 0, topic="pair")
        pair = broker.partition("pair")
        pair.tighten(2)
        broker.quorum.end(who)
        broker.catch_up()
        broker.quorum.fence(2)
        broker.catch_up()
        for _ in range(20):
            await asyncio.sleep(0)
        assert broker.quorum.state().phase is Phase.PREPARE_COMMIT
        pair.reconfigure(replace(pair.settings, min_in_sync=1))
        await until(lambda: broker.quorum.state().phase is Phase.COMPLETE_COMMIT)


async def test_markers_stand_in_the_order_in_which_the_quorum_decided(tmp_path: Path) -> None:
    async with beside_a_quorum(tmp_path) as broker:
        names = ("c", "a", "b")
        owners = {name: await written(broker, name, 0) for name in names}
        for name in names:
            broker.quorum.end(owners[name], name=name)
        broker.catch_up()
        log = broker.partition().log
        found = [log.producers.get(owners[name][0]) for name in names]
        assert [entry.marker_commit_index for entry in found if entry] == [0, 1, 2]
        assert log.transactions.last_commit_index == 2
        await until(lambda: not broker.quorum.machine.image.transactions.decided)


async def test_a_new_leader_writes_what_is_missing_before_anything_else(tmp_path: Path) -> None:
    async with beside_a_quorum(tmp_path) as broker:
        who = await written(broker, "x", 0)
        broker.quorum.fence(1)
        broker.catch_up()
        assert broker.partition().leader is None
        broker.quorum.end(who)
        broker.catch_up()
        assert broker.partition().log.log_end_offset == 1, "a broker that does not lead writes nothing"
        broker.quorum.unfence(1)
        broker.catch_up()
        assert broker.partition().log.log_end_offset == 2
        await until(lambda: broker.quorum.state().phase is Phase.COMPLETE_COMMIT)


async def test_a_marker_that_is_there_is_not_written_again(tmp_path: Path) -> None:
    async with beside_a_quorum(tmp_path) as broker:
        who = await written(broker, "x", 0)
        broker.quorum.answers = False
        broker.quorum.end(who)
        broker.catch_up()
        end = broker.partition().log.log_end_offset
        broker.quorum.fence(1)
        broker.catch_up()
        broker.quorum.unfence(1)
        broker.catch_up()
        assert broker.partition().log.log_end_offset == end
        broker.quorum.answers = True
        await until(lambda: broker.quorum.state().phase is Phase.COMPLETE_COMMIT)


@pytest.mark.parametrize("left", [1, 0])
async def test_a_marker_that_was_deleted_is_not_written_behind_later_ones(
    tmp_path: Path, *, left: int
) -> None:
    """A replica restarted after the first of two markers, or after both, and the quorum does not know of them yet.

    As leader the replica does not know the first one's producer, but knows of the later marker.
    """
    async with beside_a_quorum(tmp_path) as broker:
        owners = {name: await written(broker, name, 0) for name in "xy"}
        broker.quorum.answers = False
        for name, who in owners.items():
            broker.quorum.end(who, name=name)
        broker.catch_up()
        log = broker.partition().log
        assert (log.log_end_offset, log.transactions.last_commit_index) == (4, 1)
        broker.quorum.fence(1)
        broker.catch_up()
        piece = log.read(3, 1 << 20, 4, at_least_one=True)
        marker = bytearray(piece.read())
        piece.release()
        log.truncation.truncate_fully_and_start_at(4 - left)
        if left:
            log.append_as_follower(memoryview(marker), 0)
        broker.quorum.unfence(1)
        broker.catch_up()
        assert [log.producers.get(who[0]) is not None for who in owners.values()] == [not left, True]
        assert (log.log_end_offset, log.transactions.last_commit_index) == (4 if left else 6, 1)
        broker.quorum.answers = True
        await until(lambda: not broker.quorum.machine.image.transactions.decided)


async def test_a_full_disk_delays_a_marker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markers, "RETRY_S", 0.01)
    async with beside_a_quorum(tmp_path) as broker:
        who = await written(broker, "x", 0)
        broker.quorum.end(who)
        with mock.patch("os.pwrite", side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))):
            broker.catch_up()
            assert broker.partition().log.log_end_offset == 1
        await until(lambda: broker.quorum.state().phase is Phase.COMPLETE_COMMIT)


async def test_what_is_decided_later_does_not_overtake_a_marker_for_which_there_was_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(markers, "RETRY_S", 0.01)
    async with beside_a_quorum(tmp_path) as broker:
        first, second = await written(broker, "x", 0), await written(broker, "y", 0)
        broker.quorum.end(first)
        with mock.patch("os.pwrite", side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))):
            broker.catch_up()
        broker.quorum.end(second, name="y")
        broker.catch_up()
        await until(lambda: broker.quorum.state("y").phase is Phase.COMPLETE_COMMIT)
        assert broker.quorum.state().phase is Phase.COMPLETE_COMMIT
        assert markers_of(broker) == [first[0], second[0]]


async def test_a_marker_is_reported_once(tmp_path: Path) -> None:
    """The image repeats that the marker is owed."""
    async with beside_a_quorum(tmp_path) as broker:
        who = await written(broker, "x", 0)
        reported = []
        submit = broker.submit

        async def counted(command: Command[Any], timeout_ms: int | None = None) -> Message:
            if isinstance(command, ReportMarkers):
                reported.append(command)
                broker.markers.image_changed(["x"])
            return await submit(command, timeout_ms)

        with mock.patch.object(broker, "submit", counted):
            broker.quorum.end(who)
            broker.catch_up()
            await until(lambda: broker.quorum.state().phase is Phase.COMPLETE_COMMIT)
            broker.catch_up()
        assert len(reported) == 1


async def test_thousands_of_markers_do_not_hold_up_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(markers, "MARKERS_PER_TURN", 1)
    async with beside_a_quorum(tmp_path) as broker:
        who = await written(broker, "x", 0, 1)
        broker.quorum.end(who)
        broker.catch_up()
        ends = [broker.partition(index=index).log.log_end_offset for index in (0, 1)]
        assert sorted(ends) == [1, 2], "one in this turn, the other in the next"
        await until(lambda: broker.quorum.state().phase is Phase.COMPLETE_COMMIT)


async def test_markers_of_many_writers_are_not_owed_anew_with_each_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each report of a few used to create as many as writers times partitions: ten thousand markers became half a
    million, for which other transactions waited.
    """
    monkeypatch.setattr(markers, "MARKERS_PER_TURN", 2)
    writers, turns = 30, 2000
    async with beside_a_quorum(tmp_path) as broker:
        owner = broker.quorum.begin()
        broker.quorum.add(owner, broker.solo(0, 1))
        joined = [identity(broker.quorum.join(owner)) for _ in range(writers)]
        for who in joined:
            broker.quorum.add(who, broker.solo(0, 1))
        broker.catch_up()
        with mock.patch.object(broker.replicas, "find_by_id", wraps=broker.replicas.find_by_id) as looked_at:
            broker.quorum.end(owner, writers=joined)
            broker.catch_up()
            await until(lambda: broker.quorum.state().phase is Phase.COMPLETE_COMMIT)
            for _ in range(turns):
                await asyncio.sleep(0)
        assert len(markers_of(broker)) == writers + 1
        assert looked_at.call_count < 5 * 2 * (writers + 1)


async def test_a_marker_is_reported_that_comes_as_all_reports_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another report that would include the marker may not come for long."""
    async with beside_a_quorum(tmp_path) as broker:
        answered, submit = asyncio.Event(), broker.submit

        async def held_up(command: Command[Any], timeout_ms: int | None = None) -> Message:
            if not isinstance(command, ReportMarkers):
                return await submit(command, timeout_ms)
            applied = broker.quorum.apply(command)
            await answered.wait()
            return q.decode_result(command, applied.result)

        monkeypatch.setattr(broker, "submit", held_up)
        names = [f"x{number}" for number in range(markers.REPORTS_AT_ONCE + 1)]
        owners = [await written(broker, name, 0) for name in names]

        def end(number: int) -> None:
            broker.quorum.end(owners[number], name=names[number])
            broker.catch_up()

        for number in range(markers.REPORTS_AT_ONCE):
            end(number)
            await until(lambda: broker.quorum.state(names[number]).phase.is_over)  # noqa: B023
        answered.set()
        asyncio.get_running_loop().call_soon(end, markers.REPORTS_AT_ONCE)
        await until(lambda: broker.quorum.state(names[-1]).phase is Phase.COMPLETE_COMMIT)


async def test_an_ending_is_told_when_readers_see_it(tmp_path: Path) -> None:
    async with beside_a_quorum(tmp_path) as broker:
        who = await written(broker, "x", 0)
        number = broker.quorum.end(who).number
        waiting = asyncio.create_task(broker.completion_waits.over("x", number, 10.0))
        await asyncio.sleep(0)
        broker.catch_up()
        await waiting
        partition = broker.partition()
        assert partition.log.transactions.last_stable_offset(partition.high_watermark) == 2


async def test_who_waits_for_an_end_looks_at_partitions_however_many_have_written_there(
    tmp_path: Path,
) -> None:
    """Each report of some markers used to cause a scan of every missing marker, at quadratic cost."""
    async with beside_a_quorum(tmp_path) as broker:
        number = decided(broker)
        waiting = asyncio.create_task(broker.completion_waits.over("x", number, 10.0))
        await asyncio.sleep(0)
        with mock.patch.object(TransactionMetadata, "outstanding", new_callable=mock.PropertyMock) as looked:
            broker.completion_waits.image_changed(["x"], leaders_changed=False)
        assert not looked.called
        assert not waiting.done()
        broker.quorum.write_markers()
        broker.catch_up()
        await waiting


async def test_an_ending_that_takes_long_is_asked_for_again(tmp_path: Path) -> None:
    async with beside_a_quorum(tmp_path) as broker:
        number = decided(broker)
        with pytest.raises(KafkaError) as late:
            await broker.completion_waits.over("x", number, 0.01)
        assert late.value.code is ErrorCode.CONCURRENT_TRANSACTIONS


async def test_a_partition_without_a_leader_is_not_waited_for(tmp_path: Path) -> None:
    async with beside_a_quorum(tmp_path) as broker:
        who = await written(broker, "x", 0)
        broker.quorum.fence(1)
        number = broker.quorum.end(who).number
        broker.catch_up()
        await broker.completion_waits.over("x", number, 10.0)


async def committed_offsets(broker: Beside, *replicas: int) -> tuple[int, int]:
    """Return an open transaction with a record in the log of `__consumer_offsets`-0."""
    broker.quorum.create(assigned(OFFSETS_TOPIC, list(replicas)))
    who = broker.quorum.begin()
    broker.quorum.add(who, broker.quorum.places(0, topic=OFFSETS_TOPIC))
    broker.catch_up()
    await broker.produce(who, 0, topic=OFFSETS_TOPIC)
    return who


@pytest.mark.parametrize("commits", [True, False])
async def test_groups_are_told_before_the_quorum_is(tmp_path: Path, *, commits: bool) -> None:
    """KAFKA-17507: otherwise a client that knows of the end would read the old offsets."""
    async with beside_a_quorum(tmp_path) as broker:
        who = await committed_offsets(broker, 1)
        broker.quorum.answers = False
        broker.quorum.end(who, commits=commits)
        broker.catch_up()
        assert broker.ended == [(0, who[0], 2, commits)]
        assert not broker.quorum.state().phase.is_over
        broker.quorum.answers = True
        await until(lambda: broker.quorum.state().phase.is_over)


async def test_groups_are_not_told_of_what_could_still_be_lost(tmp_path: Path) -> None:
    async with beside_a_quorum(tmp_path) as broker:
        who = await committed_offsets(broker, 1, 2)
        broker.quorum.end(who)
        broker.catch_up()
        partition = broker.partition(OFFSETS_TOPIC)
        assert (partition.log.log_end_offset, broker.ended) == (2, [])
        partition.fetched_by(2, broker.quorum.epoch(2), 2)
        assert broker.ended == [(0, who[0], 2, True)]


async def test_groups_are_told_of_markers_of_a_former_leader(tmp_path: Path) -> None:
    async with beside_a_quorum(tmp_path) as broker:
        who = await committed_offsets(broker, 1)
        broker.quorum.answers = False
        broker.quorum.end(who)
        broker.catch_up()
        broker.quorum.fence(1)
        broker.catch_up()
        broker.quorum.unfence(1)
        broker.catch_up()
        assert broker.partition(OFFSETS_TOPIC).log.log_end_offset == 2
        assert broker.ended == [(0, who[0], 2, True)] * 2
        broker.quorum.answers = True
        await until(lambda: broker.quorum.state().phase.is_over)


async def test_of_other_topics_groups_are_told_nothing(tmp_path: Path) -> None:
    async with beside_a_quorum(tmp_path) as broker:
        broker.quorum.end(await written(broker, "x", 0))
        broker.catch_up()
        await until(lambda: broker.quorum.state().phase is Phase.COMPLETE_COMMIT)
        assert broker.ended == []


@pytest.mark.parametrize("bumps", [True, False])
@pytest.mark.parametrize("before", ["committed", "aborted", "aborted here"])
async def test_after_an_unclean_election_a_commit_keeps_what_is_its_own(
    tmp_path: Path, *, bumps: bool, before: str
) -> None:
    """The producer's earlier transactions, there or elsewhere, do not matter: this log has their marker."""
    async with beside_a_quorum(tmp_path) as broker:
        who = broker.quorum.begin()
        places = broker.quorum.places(0, topic="pair") if before == "aborted here" else broker.solo(0)
        broker.quorum.add(who, places)
        broker.catch_up()
        ended = broker.quorum.end(who, commits=before == "committed", bumps=bumps)
        broker.catch_up()
        broker.quorum.write_markers(places)
        broker.catch_up()
        assert broker.quorum.state().phase.is_over
        who = (ended.producer_id, ended.producer_epoch)
        broker.quorum.add(who, broker.quorum.places(0, topic="pair"))
        broker.catch_up()
        await broker.produce(who, 0, topic="pair")
        begun = broker.partition("pair").log.log_end_offset - 1
        broker.quorum.fence(1)
        broker.quorum.end(who, bumps=bumps)
        broker.quorum.unfence(1)
        broker.quorum.fence(2)
        broker.quorum.elect_uncleanly("pair")
        broker.catch_up()
        await until(lambda: broker.quorum.state().phase is Phase.COMPLETE_COMMIT)
        log = broker.partition("pair").log
        aborted = [found for found in log.transactions.aborted(0, 10) if found.last_offset > begun]
        assert (dict(log.transactions.open), aborted) == ({}, [])


@pytest.mark.parametrize(("bumps", "full"), [(True, False), (False, False), (True, True)])
async def test_after_an_unclean_election_the_next_commit_leaves_out_what_was_aborted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, bumps: bool, full: bool
) -> None:
    """The marker of the abort was lost with the former leader, and so was all of the next transaction, which is
    committed. On a full disk it is written later.
    """
    monkeypatch.setattr(markers, "RETRY_S", 0.01)
    async with beside_a_quorum(tmp_path) as broker:
        who, place = broker.quorum.begin(), broker.quorum.places(0, topic="pair")
        broker.quorum.add(who, place)
        broker.catch_up()
        await broker.produce(who, 0, topic="pair")
        broker.quorum.fence(1)
        ended = broker.quorum.end(who, commits=False, bumps=bumps)
        broker.quorum.write_markers(place)
        who = (ended.producer_id, ended.producer_epoch)
        broker.quorum.add(who, place)
        broker.quorum.end(who, commits=True, bumps=bumps)
        broker.quorum.unfence(1)
        broker.quorum.fence(2)
        broker.quorum.elect_uncleanly("pair")
        log = broker.partition("pair").log
        if full:
            with mock.patch("os.pwrite", side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))):
                broker.catch_up()
                broker.markers.image_changed(["x"])
                assert log.log_end_offset == 1
        else:
            broker.catch_up()
        await until(lambda: not log.transactions.open)
        assert [(found.producer_id, found.first_offset) for found in log.transactions.aborted(0, 10)] == [
            (who[0], 0)
        ]
        await until(lambda: broker.quorum.state().phase is Phase.COMPLETE_COMMIT)


async def test_what_waited_for_room_before_an_unclean_election_does_not_go_before_what_that_aborts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The aborted record would have become a part of the commit that waited after it."""
    no_room = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    async with beside_a_quorum(tmp_path) as broker:
        who, other, place = (
            broker.quorum.begin(),
            broker.quorum.begin("y"),
            broker.quorum.places(0, topic="pair"),
        )
        broker.quorum.add(who, place)
        broker.quorum.add(other, place, "y")
        broker.catch_up()
        await broker.produce(who, 0, topic="pair")
        await broker.produce(other, 0, topic="pair")
        log = broker.partition("pair").log
        monkeypatch.setattr(markers, "RETRY_S", 0.02)
        broker.quorum.end(other, name="y")
        with mock.patch("os.pwrite", side_effect=no_room):
            broker.catch_up()
            broker.quorum.fence(1)
            who = identity(broker.quorum.end(who, commits=False))
            broker.quorum.write_markers(place)
            broker.quorum.add(who, place)
            broker.quorum.end(who)
            broker.quorum.unfence(1)
            broker.quorum.fence(2)
            broker.quorum.elect_uncleanly("pair")
            monkeypatch.setattr(markers, "RETRY_S", 0.2)
            broker.catch_up()
            broker.markers.image_changed(["x"])
            assert log.log_end_offset == 2
        await until(lambda: broker.quorum.state().phase is Phase.COMPLETE_COMMIT)
        aborted = [(found.producer_id, found.first_offset) for found in log.transactions.aborted(0, 10)]
        assert (who[0], 0) in aborted
        await until(lambda: not log.transactions.open)
        assert not reported


def joins(partition: Partition, broker_id: int, offset: int) -> bool:
    """Return whether a live follower that fetches at this offset may join the ISR."""
    leader = partition.leader
    assert leader is not None
    partition.fetched_by(broker_id, leader.brokers[broker_id].broker_epoch, offset)
    return leader.may_join(leader.followers[broker_id])


async def test_after_an_unclean_election_what_nobody_knows_is_aborted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transaction's marker was lost with the former leader. On a full disk the abort is written later."""
    monkeypatch.setattr(markers, "RETRY_S", 0.01)
    async with beside_a_quorum(tmp_path) as broker:
        broker.quorum.create(assigned(OFFSETS_TOPIC, [1, 2]))
        broker.catch_up()
        partition = broker.partition(OFFSETS_TOPIC)
        lost = encode_batch(
            [(None, b"", 0)], producer_id=77, producer_epoch=3, base_sequence=0, transactional=True
        )
        partition.append(memoryview(bytearray(lost)), required_acks=1)
        broker.quorum.fence(1)
        broker.quorum.fence(2)
        broker.quorum.unfence(1)
        broker.catch_up()
        assert partition.leader is None
        broker.quorum.elect_uncleanly(OFFSETS_TOPIC)
        with mock.patch("os.pwrite", side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))):
            broker.catch_up()
            assert partition.log.transactions.open
            broker.quorum.unfence(2)
            broker.catch_up()
            # A replica that joined now could lead cleanly later, and would search for no transaction to abort.
            assert not joins(partition, 2, partition.log.log_end_offset)
        await until(lambda: not partition.log.transactions.open)
        assert not joins(partition, 2, partition.log.log_end_offset - 1), "without the marker"
        assert joins(partition, 2, partition.log.log_end_offset)
        await until(lambda: broker.ended == [(0, 77, 2, False)])
