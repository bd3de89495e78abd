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


async def written(one: Beside, name: str, *indexes: int) -> tuple[int, int]:
    """Return a transaction with a record in each of these partitions, not ended."""
    who = one.quorum.begin(name)
    one.quorum.add(who, one.solo(*indexes), name)
    one.catch_up()
    for index in indexes:
        await one.produce(who, 0, index=index)
    return who


def decided(one: Beside) -> int:
    """Return the number of a transaction in a partition of another leader: its marker is not written."""
    who = one.quorum.begin()
    one.quorum.add(who, one.quorum.places(0, topic="pair"))
    one.catch_up()
    number = one.quorum.end(who).number
    one.catch_up()
    return number


def markers_of(one: Beside) -> list[int]:
    """Return the producer ids of the markers in partition 0, in the order of the log."""
    log = one.partition().log
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
    async with beside_a_quorum(tmp_path) as one:
        who = await written(one, "x", 0, 1)
        one.quorum.end(who, commits=commits)
        one.catch_up()
        for index in (0, 1):
            log = one.partition(index=index).log
            assert (log.log_end_offset, dict(log.transactions.open)) == (2, {})
            assert log.transactions.first_unstable_offset(2) is None
            assert len(log.transactions.aborted(0, 2)) == (0 if commits else 1)
        await until(lambda: one.quorum.state().phase.is_over)
        assert one.quorum.state().phase is (Phase.COMPLETE_COMMIT if commits else Phase.COMPLETE_ABORT)


async def test_nothing_is_reported_that_could_still_be_lost(tmp_path: Path) -> None:
    """The leader dies with the marker, and the quorum would believe that the marker exists."""
    async with beside_a_quorum(tmp_path) as one:
        who = one.quorum.begin()
        one.quorum.add(who, one.quorum.places(0, topic="pair"))
        one.catch_up()
        await one.produce(who, 0, topic="pair")
        one.quorum.end(who)
        one.catch_up()
        pair = one.partition("pair")
        assert pair.log.log_end_offset == 2
        for _ in range(20):
            await asyncio.sleep(0)
        assert one.quorum.state().phase is Phase.PREPARE_COMMIT
        assert pair.log.transactions.last_stable_offset(pair.high_watermark) == 0
        pair.fetched_by(2, one.quorum.epoch(2), 2)
        await until(lambda: one.quorum.state().phase is Phase.COMPLETE_COMMIT)
        assert pair.log.transactions.last_stable_offset(pair.high_watermark) == 2


async def test_a_marker_outlives_a_shortage_of_replicas(tmp_path: Path) -> None:
    """Producers are answered that the outcome is unknown; the marker's writer goes on waiting."""
    async with beside_a_quorum(tmp_path) as one:
        who = one.quorum.begin()
        one.quorum.add(who, one.quorum.places(0, topic="pair"))
        one.catch_up()
        await one.produce(who, 0, topic="pair")
        pair = one.partition("pair")
        pair.tighten(2)
        one.quorum.end(who)
        one.catch_up()
        one.quorum.fence(2)
        one.catch_up()
        for _ in range(20):
            await asyncio.sleep(0)
        assert one.quorum.state().phase is Phase.PREPARE_COMMIT
        pair.reconfigure(replace(pair.settings, min_in_sync=1))
        await until(lambda: one.quorum.state().phase is Phase.COMPLETE_COMMIT)


async def test_markers_stand_in_the_order_in_which_the_quorum_decided(tmp_path: Path) -> None:
    async with beside_a_quorum(tmp_path) as one:
        names = ("c", "a", "b")
        owners = {name: await written(one, name, 0) for name in names}
        for name in names:
            one.quorum.end(owners[name], name=name)
        one.catch_up()
        log = one.partition().log
        found = [log.producers.get(owners[name][0]) for name in names]
        assert [entry.marker_commit_index for entry in found if entry] == [0, 1, 2]
        assert log.transactions.last_commit_index == 2
        await until(lambda: not one.quorum.machine.image.transactions.decided)


async def test_a_new_leader_writes_what_is_missing_before_anything_else(tmp_path: Path) -> None:
    async with beside_a_quorum(tmp_path) as one:
        who = await written(one, "x", 0)
        one.quorum.fence(1)
        one.catch_up()
        assert one.partition().leader is None
        one.quorum.end(who)
        one.catch_up()
        assert one.partition().log.log_end_offset == 1, "a broker that does not lead writes nothing"
        one.quorum.unfence(1)
        one.catch_up()
        assert one.partition().log.log_end_offset == 2
        await until(lambda: one.quorum.state().phase is Phase.COMPLETE_COMMIT)


async def test_a_marker_that_is_there_is_not_written_again(tmp_path: Path) -> None:
    async with beside_a_quorum(tmp_path) as one:
        who = await written(one, "x", 0)
        one.quorum.answers = False
        one.quorum.end(who)
        one.catch_up()
        end = one.partition().log.log_end_offset
        one.quorum.fence(1)
        one.catch_up()
        one.quorum.unfence(1)
        one.catch_up()
        assert one.partition().log.log_end_offset == end
        one.quorum.answers = True
        await until(lambda: one.quorum.state().phase is Phase.COMPLETE_COMMIT)


@pytest.mark.parametrize("left", [1, 0])
async def test_a_marker_that_was_deleted_is_not_written_behind_later_ones(
    tmp_path: Path, *, left: int
) -> None:
    """A replica restarted after the first of two markers, or after both, and the quorum does not know of them yet.

    As leader the replica does not know the first one's producer, but knows of the later marker.
    """
    async with beside_a_quorum(tmp_path) as one:
        owners = {name: await written(one, name, 0) for name in "xy"}
        one.quorum.answers = False
        for name, who in owners.items():
            one.quorum.end(who, name=name)
        one.catch_up()
        log = one.partition().log
        assert (log.log_end_offset, log.transactions.last_commit_index) == (4, 1)
        one.quorum.fence(1)
        one.catch_up()
        piece = log.read(3, 1 << 20, 4, at_least_one=True)
        marker = bytearray(piece.read())
        piece.release()
        log.truncation.truncate_fully_and_start_at(4 - left)
        if left:
            log.append_as_follower(memoryview(marker), 0)
        one.quorum.unfence(1)
        one.catch_up()
        assert [log.producers.get(who[0]) is not None for who in owners.values()] == [not left, True]
        assert (log.log_end_offset, log.transactions.last_commit_index) == (4 if left else 6, 1)
        one.quorum.answers = True
        await until(lambda: not one.quorum.machine.image.transactions.decided)


async def test_a_full_disk_delays_a_marker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markers, "RETRY_S", 0.01)
    async with beside_a_quorum(tmp_path) as one:
        who = await written(one, "x", 0)
        one.quorum.end(who)
        with mock.patch("os.pwrite", side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))):
            one.catch_up()
            assert one.partition().log.log_end_offset == 1
        await until(lambda: one.quorum.state().phase is Phase.COMPLETE_COMMIT)


async def test_what_is_decided_later_does_not_overtake_a_marker_for_which_there_was_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(markers, "RETRY_S", 0.01)
    async with beside_a_quorum(tmp_path) as one:
        first, second = await written(one, "x", 0), await written(one, "y", 0)
        one.quorum.end(first)
        with mock.patch("os.pwrite", side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))):
            one.catch_up()
        one.quorum.end(second, name="y")
        one.catch_up()
        await until(lambda: one.quorum.state("y").phase is Phase.COMPLETE_COMMIT)
        assert one.quorum.state().phase is Phase.COMPLETE_COMMIT
        assert markers_of(one) == [first[0], second[0]]


async def test_a_marker_is_reported_once(tmp_path: Path) -> None:
    """The image repeats that the marker is owed."""
    async with beside_a_quorum(tmp_path) as one:
        who = await written(one, "x", 0)
        told = []
        submit = one.submit

        async def counted(command: Command[Any], timeout_ms: int | None = None) -> Message:
            if isinstance(command, ReportMarkers):
                told.append(command)
                one.markers.image_changed(["x"])
            return await submit(command, timeout_ms)

        with mock.patch.object(one, "submit", counted):
            one.quorum.end(who)
            one.catch_up()
            await until(lambda: one.quorum.state().phase is Phase.COMPLETE_COMMIT)
            one.catch_up()
        assert len(told) == 1


async def test_thousands_of_markers_do_not_hold_up_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(markers, "MARKERS_PER_TURN", 1)
    async with beside_a_quorum(tmp_path) as one:
        who = await written(one, "x", 0, 1)
        one.quorum.end(who)
        one.catch_up()
        ends = [one.partition(index=index).log.log_end_offset for index in (0, 1)]
        assert sorted(ends) == [1, 2], "one in this turn, the other in the next"
        await until(lambda: one.quorum.state().phase is Phase.COMPLETE_COMMIT)


async def test_markers_of_many_writers_are_not_owed_anew_with_each_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each report of a few used to create as many as writers times partitions: ten thousand markers became half a
    million, for which other transactions waited.
    """
    monkeypatch.setattr(markers, "MARKERS_PER_TURN", 2)
    writers, turns = 30, 2000
    async with beside_a_quorum(tmp_path) as one:
        owner = one.quorum.begin()
        one.quorum.add(owner, one.solo(0, 1))
        joined = [identity(one.quorum.join(owner)) for _ in range(writers)]
        for who in joined:
            one.quorum.add(who, one.solo(0, 1))
        one.catch_up()
        with mock.patch.object(one.replicas, "find_by_id", wraps=one.replicas.find_by_id) as looked_at:
            one.quorum.end(owner, writers=joined)
            one.catch_up()
            await until(lambda: one.quorum.state().phase is Phase.COMPLETE_COMMIT)
            for _ in range(turns):
                await asyncio.sleep(0)
        assert len(markers_of(one)) == writers + 1
        assert looked_at.call_count < 5 * 2 * (writers + 1)


async def test_a_marker_is_reported_that_comes_as_all_reports_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another report that would include the marker may not come for long."""
    async with beside_a_quorum(tmp_path) as one:
        answered, submit = asyncio.Event(), one.submit

        async def held_up(command: Command[Any], timeout_ms: int | None = None) -> Message:
            if not isinstance(command, ReportMarkers):
                return await submit(command, timeout_ms)
            applied = one.quorum.apply(command)
            await answered.wait()
            return q.decode_result(command, applied.result)

        monkeypatch.setattr(one, "submit", held_up)
        names = [f"x{number}" for number in range(markers.REPORTS_AT_ONCE + 1)]
        owners = [await written(one, name, 0) for name in names]

        def end(number: int) -> None:
            one.quorum.end(owners[number], name=names[number])
            one.catch_up()

        for number in range(markers.REPORTS_AT_ONCE):
            end(number)
            await until(lambda: one.quorum.state(names[number]).phase.is_over)  # noqa: B023
        answered.set()
        asyncio.get_running_loop().call_soon(end, markers.REPORTS_AT_ONCE)
        await until(lambda: one.quorum.state(names[-1]).phase is Phase.COMPLETE_COMMIT)


async def test_an_ending_is_told_when_readers_see_it(tmp_path: Path) -> None:
    async with beside_a_quorum(tmp_path) as one:
        who = await written(one, "x", 0)
        number = one.quorum.end(who).number
        waiting = asyncio.create_task(one.completion_waits.over("x", number, 10.0))
        await asyncio.sleep(0)
        one.catch_up()
        await waiting
        partition = one.partition()
        assert partition.log.transactions.last_stable_offset(partition.high_watermark) == 2


async def test_who_waits_for_an_end_looks_at_partitions_however_many_have_written_there(
    tmp_path: Path,
) -> None:
    """Each report of some markers used to cause a scan of every missing marker, at quadratic cost."""
    async with beside_a_quorum(tmp_path) as one:
        number = decided(one)
        waiting = asyncio.create_task(one.completion_waits.over("x", number, 10.0))
        await asyncio.sleep(0)
        with mock.patch.object(TransactionMetadata, "outstanding", new_callable=mock.PropertyMock) as looked:
            one.completion_waits.image_changed(["x"], leaders_changed=False)
        assert not looked.called
        assert not waiting.done()
        one.quorum.write_markers()
        one.catch_up()
        await waiting


async def test_an_ending_that_takes_long_is_asked_for_again(tmp_path: Path) -> None:
    async with beside_a_quorum(tmp_path) as one:
        number = decided(one)
        with pytest.raises(KafkaError) as late:
            await one.completion_waits.over("x", number, 0.01)
        assert late.value.code is ErrorCode.CONCURRENT_TRANSACTIONS


async def test_a_partition_without_a_leader_is_not_waited_for(tmp_path: Path) -> None:
    async with beside_a_quorum(tmp_path) as one:
        who = await written(one, "x", 0)
        one.quorum.fence(1)
        number = one.quorum.end(who).number
        one.catch_up()
        await one.completion_waits.over("x", number, 10.0)


async def committed_offsets(one: Beside, *replicas: int) -> tuple[int, int]:
    """Return an open transaction with a record in the log of `__consumer_offsets`-0."""
    one.quorum.create(assigned(OFFSETS_TOPIC, list(replicas)))
    who = one.quorum.begin()
    one.quorum.add(who, one.quorum.places(0, topic=OFFSETS_TOPIC))
    one.catch_up()
    await one.produce(who, 0, topic=OFFSETS_TOPIC)
    return who


@pytest.mark.parametrize("commits", [True, False])
async def test_groups_are_told_before_the_quorum_is(tmp_path: Path, *, commits: bool) -> None:
    """KAFKA-17507: otherwise a client that knows of the end would read the old offsets."""
    async with beside_a_quorum(tmp_path) as one:
        who = await committed_offsets(one, 1)
        one.quorum.answers = False
        one.quorum.end(who, commits=commits)
        one.catch_up()
        assert one.ended == [(0, who[0], 2, commits)]
        assert not one.quorum.state().phase.is_over
        one.quorum.answers = True
        await until(lambda: one.quorum.state().phase.is_over)


async def test_groups_are_not_told_of_what_could_still_be_lost(tmp_path: Path) -> None:
    async with beside_a_quorum(tmp_path) as one:
        who = await committed_offsets(one, 1, 2)
        one.quorum.end(who)
        one.catch_up()
        partition = one.partition(OFFSETS_TOPIC)
        assert (partition.log.log_end_offset, one.ended) == (2, [])
        partition.fetched_by(2, one.quorum.epoch(2), 2)
        assert one.ended == [(0, who[0], 2, True)]


async def test_groups_are_told_of_markers_of_a_former_leader(tmp_path: Path) -> None:
    async with beside_a_quorum(tmp_path) as one:
        who = await committed_offsets(one, 1)
        one.quorum.answers = False
        one.quorum.end(who)
        one.catch_up()
        one.quorum.fence(1)
        one.catch_up()
        one.quorum.unfence(1)
        one.catch_up()
        assert one.partition(OFFSETS_TOPIC).log.log_end_offset == 2
        assert one.ended == [(0, who[0], 2, True)] * 2
        one.quorum.answers = True
        await until(lambda: one.quorum.state().phase.is_over)


async def test_of_other_topics_groups_are_told_nothing(tmp_path: Path) -> None:
    async with beside_a_quorum(tmp_path) as one:
        one.quorum.end(await written(one, "x", 0))
        one.catch_up()
        await until(lambda: one.quorum.state().phase is Phase.COMPLETE_COMMIT)
        assert one.ended == []


@pytest.mark.parametrize("bumps", [True, False])
@pytest.mark.parametrize("before", ["committed", "aborted", "aborted here"])
async def test_after_an_unclean_election_a_commit_keeps_what_is_its_own(
    tmp_path: Path, *, bumps: bool, before: str
) -> None:
    """The producer's earlier transactions, there or elsewhere, do not matter: this log has their marker."""
    async with beside_a_quorum(tmp_path) as one:
        who = one.quorum.begin()
        places = one.quorum.places(0, topic="pair") if before == "aborted here" else one.solo(0)
        one.quorum.add(who, places)
        one.catch_up()
        ended = one.quorum.end(who, commits=before == "committed", bumps=bumps)
        one.catch_up()
        one.quorum.write_markers(places)
        one.catch_up()
        assert one.quorum.state().phase.is_over
        who = (ended.producer_id, ended.producer_epoch)
        one.quorum.add(who, one.quorum.places(0, topic="pair"))
        one.catch_up()
        await one.produce(who, 0, topic="pair")
        begun = one.partition("pair").log.log_end_offset - 1
        one.quorum.fence(1)
        one.quorum.end(who, bumps=bumps)
        one.quorum.unfence(1)
        one.quorum.fence(2)
        one.quorum.elect_uncleanly("pair")
        one.catch_up()
        await until(lambda: one.quorum.state().phase is Phase.COMPLETE_COMMIT)
        log = one.partition("pair").log
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
    async with beside_a_quorum(tmp_path) as one:
        who, place = one.quorum.begin(), one.quorum.places(0, topic="pair")
        one.quorum.add(who, place)
        one.catch_up()
        await one.produce(who, 0, topic="pair")
        one.quorum.fence(1)
        ended = one.quorum.end(who, commits=False, bumps=bumps)
        one.quorum.write_markers(place)
        who = (ended.producer_id, ended.producer_epoch)
        one.quorum.add(who, place)
        one.quorum.end(who, commits=True, bumps=bumps)
        one.quorum.unfence(1)
        one.quorum.fence(2)
        one.quorum.elect_uncleanly("pair")
        log = one.partition("pair").log
        if full:
            with mock.patch("os.pwrite", side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))):
                one.catch_up()
                one.markers.image_changed(["x"])
                assert log.log_end_offset == 1
        else:
            one.catch_up()
        await until(lambda: not log.transactions.open)
        assert [(found.producer_id, found.first_offset) for found in log.transactions.aborted(0, 10)] == [
            (who[0], 0)
        ]
        await until(lambda: one.quorum.state().phase is Phase.COMPLETE_COMMIT)


async def test_what_waited_for_room_before_an_unclean_election_does_not_go_before_what_that_aborts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The aborted record would have become a part of the commit that waited after it."""
    no_room = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    async with beside_a_quorum(tmp_path) as one:
        who, other, place = one.quorum.begin(), one.quorum.begin("y"), one.quorum.places(0, topic="pair")
        one.quorum.add(who, place)
        one.quorum.add(other, place, "y")
        one.catch_up()
        await one.produce(who, 0, topic="pair")
        await one.produce(other, 0, topic="pair")
        log = one.partition("pair").log
        monkeypatch.setattr(markers, "RETRY_S", 0.02)
        one.quorum.end(other, name="y")
        with mock.patch("os.pwrite", side_effect=no_room):
            one.catch_up()
            one.quorum.fence(1)
            who = identity(one.quorum.end(who, commits=False))
            one.quorum.write_markers(place)
            one.quorum.add(who, place)
            one.quorum.end(who)
            one.quorum.unfence(1)
            one.quorum.fence(2)
            one.quorum.elect_uncleanly("pair")
            monkeypatch.setattr(markers, "RETRY_S", 0.2)
            one.catch_up()
            one.markers.image_changed(["x"])
            assert log.log_end_offset == 2
        await until(lambda: one.quorum.state().phase is Phase.COMPLETE_COMMIT)
        aborted = [(found.producer_id, found.first_offset) for found in log.transactions.aborted(0, 10)]
        assert (who[0], 0) in aborted
        await until(lambda: not log.transactions.open)
        assert not told


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
    async with beside_a_quorum(tmp_path) as one:
        one.quorum.create(assigned(OFFSETS_TOPIC, [1, 2]))
        one.catch_up()
        partition = one.partition(OFFSETS_TOPIC)
        lost = encode_batch(
            [(None, b"", 0)], producer_id=77, producer_epoch=3, base_sequence=0, transactional=True
        )
        partition.append(memoryview(bytearray(lost)), required_acks=1)
        one.quorum.fence(1)
        one.quorum.fence(2)
        one.quorum.unfence(1)
        one.catch_up()
        assert partition.leader is None
        one.quorum.elect_uncleanly(OFFSETS_TOPIC)
        with mock.patch("os.pwrite", side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))):
            one.catch_up()
            assert partition.log.transactions.open
            one.quorum.unfence(2)
            one.catch_up()
            # A replica that joined now could lead cleanly later, and would search for no transaction to abort.
            assert not joins(partition, 2, partition.log.log_end_offset)
        await until(lambda: not partition.log.transactions.open)
        assert not joins(partition, 2, partition.log.log_end_offset - 1), "without the marker"
        assert joins(partition, 2, partition.log.log_end_offset)
        await until(lambda: one.ended == [(0, 77, 2, False)])
