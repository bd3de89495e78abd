"""Records in a spool are delivered once and in order, despite failures, and by any producer."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from weakref import ref

import pytest

from ottla import (
    KafkaError,
    LeftInSpool,
    Producer,
    SpoolFull,
    SpoolUnusable,
    read_rejected,
)
from ottla.client.spool import delivery as delivery_module
from ottla.client.spool import spool as spool_module
from ottla.client.spool.delivery import Delivery
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.produce import ProduceRequest
from ottla.protocol.records.record_batch import BatchHeader
from tests.client.fake_cluster import Fault, PartitionLog
from tests.client.fake_transactions import Trouble
from tests.client.spool.spool_cluster import SpoolCluster, spool_cluster

NOWHERE = "127.0.0.1:1"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the five seconds for a producer that cannot deliver."""
    monkeypatch.setattr(spool_module, "STOP_S", 0.3)
    monkeypatch.setattr(delivery_module, "CLOSE_S", 0.2)


def producer(where: SpoolCluster | str, path: Path, **options: Any) -> Producer:
    bootstrap = where if isinstance(where, str) else where.bootstrap
    options = {"retry_backoff_max_ms": 10, "max_block_ms": 2_000} | options
    return Producer(bootstrap_servers=bootstrap, spool_dir=path, **options)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


def files(path: Path) -> list[Path]:
    return sorted(path.glob("*.spool"))


def numbers(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


@pytest.mark.parametrize("version", [1, 2])
async def test_records_are_delivered_and_their_futures_know_where(version: int, tmp_path: Path) -> None:
    async with spool_cluster(version) as cluster:
        async with producer(cluster, tmp_path) as spooling:
            futures = [await spooling.send("t", value) for value in numbers(100)]
            await spooling.flush()
            assert [(await delivery).offset for delivery in futures] == list(range(100))
            assert (await spooling.send_and_wait("t", b"100")).offset == 100
            assert spooling.spooled.records == 0
        assert cluster.committed(0) == numbers(101)
        assert not cluster.hanging()
        assert not files(tmp_path)  # no delivered record is left


async def test_without_a_cluster_records_wait_for_the_next_producer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with producer(NOWHERE, tmp_path) as first:
        futures = [await first.send("t", value, key=b"k", headers=[("h", b"x")]) for value in numbers(10)]
        await until(lambda: first.spooled.error is not None)
        assert first.spooled.records == 10
    assert first.spooled.records == 10
    for future in futures:
        with pytest.raises(LeftInSpool):
            await future
    assert "10 records were not delivered and stay there" in caplog.text
    async with producer(NOWHERE, tmp_path) as second:
        await second.send("t", b"10")
    async with spool_cluster() as cluster, producer(cluster, tmp_path) as third:
        assert third.spooled.records == 11
        await third.send("t", b"11")
        await third.flush()
        assert cluster.committed(0) == numbers(12)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("seed", range(6))
async def test_each_is_delivered_once_and_in_order_whatever_fails(
    seed: int, version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connections break, answers are lost, leaders and coordinators move, and producers die at any step."""
    chance = random.Random(seed)
    monkeypatch.setattr(delivery_module, "CHUNK_RECORDS", 7)
    faults = [
        Fault.MOVE_LEADER,
        Fault.DROP_BEFORE,
        Fault.DROP_AFTER,
        Fault.NOT_LEADER,
        Fault.NOT_ENOUGH_REPLICAS,
    ]
    troubles = [Trouble.MOVED, Trouble.DROP_BEFORE, Trouble.DROP_AFTER, Trouble.BUSY, Trouble.ABORTABLE][
        : 3 + version
    ]
    async with spool_cluster(version, brokers=2, partitions=2) as cluster:
        cluster.fault = lambda: chance.choice(faults) if chance.random() < 0.1 else Fault.NONE
        cluster.trouble = lambda: chance.choice(troubles) if chance.random() < 0.1 else Trouble.NONE
        sent: list[bytes] = []
        for _ in range(12):
            spooling = producer(cluster, tmp_path)
            await spooling.start()
            for _ in range(chance.randrange(40)):
                sent.append(b"%d" % len(sent))
                await spooling.send("t", sent[-1], key=b"%d" % (len(sent) % 5))
                if chance.random() < 0.1:
                    await asyncio.sleep(chance.random() * 0.01)
            await asyncio.sleep(chance.random() * 0.05)
            await die(spooling)
        async with producer(cluster, tmp_path) as last, asyncio.timeout(60):
            await last.flush()
        found = [cluster.committed(partition) for partition in range(2)]
        assert sorted(found[0] + found[1], key=int) == sent, f"seed {seed}"
        assert all(values == sorted(values, key=int) for values in found), f"seed {seed}"


async def die(spooling: Producer) -> None:
    """Stop like kill -9, without cleanup. Only the lock is released, as at the end of a process."""
    spool = spooling._spool
    assert spool is not None
    assert spool._task is not None
    spool._task.cancel()
    await asyncio.wait([spool._task])
    spool._folder.close()
    await spooling.parts.cluster.close()


async def test_a_commit_whose_answer_is_lost_counts_once(tmp_path: Path) -> None:
    """The producer is killed between commit and checkpoint: the next one learns from the cluster that the commit
    succeeded.
    """
    async with spool_cluster() as cluster:
        async with producer(cluster, tmp_path) as spooling:
            await spooling.send_and_wait("t", b"0")
        before = (tmp_path / "delivered").read_bytes()
        two = producer(cluster, tmp_path)
        await two.start()
        await two.send_and_wait("t", b"1")
        await die(two)
        assert files(tmp_path)
        (tmp_path / "delivered").write_bytes(before)
        async with producer(cluster, tmp_path) as three:
            await three.send_and_wait("t", b"2")
        assert cluster.committed(0) == numbers(3)


@pytest.mark.parametrize("done", [True, False])
@pytest.mark.parametrize("which", [1, 2])
async def test_a_commit_without_an_answer_is_looked_up(which: int, done: bool, tmp_path: Path) -> None:
    """The coordinator is lost during the first commit, of the position, or the second, of the records; when it answers
    again the producer is fenced. Futures still get their records' offsets.
    """
    async with spool_cluster() as cluster:
        ends = 0

        def trouble() -> Trouble:
            nonlocal ends
            if cluster.asked[-1] != "EndTxn":
                return Trouble.NONE
            ends += 1
            if ends == which + 1:
                [owned] = cluster.ids.values()
                owned.epoch, owned.last_epoch = owned.epoch + 1, -1
                cluster._settle(owned, set())
            lost = Trouble.DROP_AFTER if done else Trouble.DROP_BEFORE
            return lost if ends == which else Trouble.NONE

        cluster.trouble = trouble
        async with producer(cluster, tmp_path) as spooling, asyncio.timeout(60):
            futures = [await spooling.send("t", value) for value in numbers(10)]
            await spooling.flush()
            assert ends > which
            offsets = [(await future).offset for future in futures]
        assert cluster.committed(0) == numbers(10)
        assert [cluster.fates[0][offset].value for offset in offsets] == numbers(10)
        assert all(cluster.fates[0][offset].committed for offset in offsets)


async def test_half_of_a_chunk_in_the_log_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The producer is killed when the records are written and not committed: they are aborted, and sent again as a
    whole.
    """
    async with spool_cluster(partitions=2) as cluster:
        spooling = producer(cluster, tmp_path)
        await spooling.start()
        await spooling.send_and_wait("t", b"-2", partition=0)
        committing = asyncio.Event()

        async def hang(*_: object) -> None:
            committing.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(Delivery, "_commit", hang)
        for value in numbers(10):
            await spooling.send("t", value, partition=int(value) % 2)
        await committing.wait()
        await until(lambda: sum(map(len, cluster.fates)) > 1)
        await die(spooling)
        monkeypatch.undo()
        async with producer(cluster, tmp_path) as two:
            await two.flush()
        assert cluster.committed(0) == [b"-2", *numbers(10)[::2]]
        assert cluster.committed(1) == numbers(10)[1::2]
        assert not cluster.hanging()


async def test_a_forgotten_position_matters_only_when_something_was_under_way(tmp_path: Path) -> None:
    async with spool_cluster() as cluster:
        async with producer(cluster, tmp_path) as spooling:
            await spooling.send_and_wait("t", b"0")
        cluster.group_offsets.clear()
        async with producer(cluster, tmp_path) as two:
            await two.send_and_wait("t", b"1")
        assert cluster.committed(0) == numbers(2)


@pytest.mark.parametrize("again", [False, True])
async def test_a_forgotten_position_is_asked_of_the_operator(
    again: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The producer is killed during a chunk, and the group's offsets expire meanwhile: it does not guess."""
    async with spool_cluster() as cluster:
        spooling = producer(cluster, tmp_path)
        await spooling.start()
        await spooling.send_and_wait("t", b"0")
        cluster.held[26] = asyncio.Event()  # EndTxn
        await spooling.send("t", b"1")
        await until(lambda: cluster.waiting)
        checkpoint = spooling._spool._folder.checkpoint  # type: ignore[union-attr]
        await die(spooling)
        cluster.held.pop(26).set()
        await until(lambda: cluster.committed(0) == numbers(2))  # it had gone out
        cluster.group_offsets.clear()
        two = producer(cluster, tmp_path)
        await two.start()
        await two.send("t", b"2")
        await until(lambda: "Admin.alter_offsets" in caplog.text)
        assert two.spooled.records == 2
        assert cluster.committed(0) == numbers(2)
        assert str(checkpoint.under_way) in caplog.text
        cluster.owner = ""
        cluster.group_offsets["t", 0] = checkpoint.delivered if again else checkpoint.under_way
        async with asyncio.timeout(60):
            await two.flush()
        await two.stop()
        assert cluster.committed(0) == [b"0", b"1", *([b"1"] if again else []), b"2"]


async def test_a_second_producer_on_the_folder_is_refused(tmp_path: Path) -> None:
    async with producer(NOWHERE, tmp_path):
        with pytest.raises(SpoolUnusable, match=f"{tmp_path} is used by another producer"):
            await producer(NOWHERE, tmp_path).start()
    async with producer(NOWHERE, tmp_path):
        """The lock went with the first."""


async def test_of_two_copies_of_a_folder_the_later_one_goes_on(tmp_path: Path) -> None:
    original, copy = tmp_path / "original", tmp_path / "copy"
    async with spool_cluster() as cluster:
        async with producer(cluster, original) as spooling:
            await spooling.send_and_wait("t", b"0")
            shutil.copytree(original, copy)
            async with producer(cluster, copy) as two:
                await two.send_and_wait("t", b"of the copy")
                future = await spooling.send("t", b"of the original")
                with pytest.raises(SpoolUnusable, match="another copy of this spool"):
                    await spooling.flush()
                with pytest.raises(SpoolUnusable, match="delivers no more"):
                    await spooling.send("t", b"?")
                await two.send_and_wait("t", b"1")
        with pytest.raises(LeftInSpool):
            await future
        assert cluster.committed(0) == [b"0", b"of the copy", b"1"]


async def test_an_old_copy_of_a_folder_delivers_nothing(tmp_path: Path) -> None:
    folder, copy = tmp_path / "folder", tmp_path / "copy"
    async with spool_cluster() as cluster:
        async with producer(NOWHERE, folder) as spooling:
            await spooling.send("t", b"0")
        shutil.copytree(folder, copy)
        for value in numbers(3, 1):
            async with producer(cluster, folder) as spooling:
                await spooling.send_and_wait("t", value)
        async with producer(cluster, copy) as old:
            with pytest.raises(SpoolUnusable, match="another copy"):
                await old.flush()
        assert cluster.committed(0) == numbers(4)


async def test_a_full_spool_makes_send_wait_and_then_says_so(tmp_path: Path) -> None:
    small = {"max_request_size": 2_000, "batch_size": 1_000, "spool_bytes_max": 8_000}
    async with spool_cluster() as cluster:
        count = 0
        async with producer(NOWHERE, tmp_path, max_block_ms=100, **small) as spooling:
            with pytest.raises(SpoolFull) as caught:
                while True:
                    await spooling.send("t", b"%d" % count + b" " * 500)
                    count += 1
            assert spooling.spooled.bytes <= 8_000
        for part in (str(tmp_path), "8000 bytes (spool_bytes_max)", f"{count} records", "max_block_ms"):
            assert part in str(caught.value)
        assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
        assert count == 14
        async with producer(cluster, tmp_path, **small) as two:
            for more in range(count, 100):  # waits while records are delivered
                await two.send("t", b"%d" % more + b" " * 500)
                assert two.spooled.bytes <= 8_000
            await two.flush()
        assert [int(value) for value in cluster.committed(0)] == list(range(100))


async def test_a_topic_that_never_appears_holds_nobody_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with spool_cluster() as cluster:
        async with producer(cluster, tmp_path, max_block_ms=100) as spooling:
            first = await spooling.send("t", b"0")
            lost = [
                await spooling.send("nobody", b"x%d" % index, b"k", headers=[("h", None)])
                for index in range(3)
            ]
            last = await spooling.send("t", b"1")
            await spooling.flush()
            assert (await first).offset == 0
            assert (await last).offset == 1
            for future in lost:
                with pytest.raises(KafkaError, match="nobody") as caught:
                    await future
                assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert (spooling.spooled.records, spooling.spooled.rejected) == (0, 3)
        assert "3 records were rejected" in caplog.text
        found = list(read_rejected(tmp_path))
        assert [entry.record.value for entry in found] == [b"x0", b"x1", b"x2"]
        assert {(entry.record.topic, entry.record.key, entry.record.headers) for entry in found} == {
            ("nobody", b"k", (("h", None),))
        }
        assert "UNKNOWN_TOPIC_OR_PARTITION" in found[0].reason
        async with producer(cluster, tmp_path) as two:
            assert two.spooled.rejected == 3
            await two.send_and_wait("t", b"2")
        assert cluster.committed(0) == numbers(3)


@pytest.mark.parametrize("version", [1, 2])
async def test_the_record_that_is_refused_is_found_among_many(
    version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker refuses a batch as a whole; its other records are delivered."""
    async with spool_cluster(version) as cluster:

        def admits(request: Any, number: int, index: int, header: Any) -> ErrorCode:
            code = SpoolCluster.admits(cluster, request, number, index, header)
            data = request.topic_data[0].partition_data[0].records
            return ErrorCode.MESSAGE_TOO_LARGE if code == 0 and b"poison" in bytes(data) else code

        monkeypatch.setattr(cluster, "admits", admits)
        values = numbers(30)
        values[11] = b"poison 1"
        values[25] = b"poison 2"
        async with producer(cluster, tmp_path) as spooling:
            futures = [await spooling.send("t", value) for value in values]
            async with asyncio.timeout(60):
                await spooling.flush()
            failed = [index for index, future in enumerate(futures) if future.exception()]
            assert failed == [11, 25]
            assert spooling.spooled.rejected == 2
        assert [entry.record.value for entry in read_rejected(tmp_path)] == [b"poison 1", b"poison 2"]
        assert cluster.committed(0) == [value for value in values if b"poison" not in value]


async def test_what_a_partitioner_cannot_place_is_rejected(tmp_path: Path) -> None:
    def partitioner(key: bytes, count: int) -> int:
        if key == b"bad":
            raise RuntimeError("no place for it")
        return 0

    async with spool_cluster() as cluster:
        async with producer(cluster, tmp_path, partitioner=partitioner) as spooling:
            await spooling.send("t", b"0", b"k")
            bad = await spooling.send("t", b"?", b"bad")
            beyond = await spooling.send("t", b"?", partition=7)
            await spooling.send("t", b"1", b"k")
            await spooling.flush()
            with pytest.raises(KafkaError, match="no place for it"):
                await bad
            with pytest.raises(KafkaError, match="none numbered 7"):
                await beyond
        assert cluster.committed(0) == numbers(2)


async def test_files_that_cannot_be_deleted_keep_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path, missing_ok: bool = False) -> None:
        raise OSError(30, "Read-only file system")

    small = {"max_request_size": 1_000, "batch_size": 500, "spool_bytes_max": 4_000}
    async with spool_cluster() as cluster, producer(cluster, tmp_path, **small) as spooling:
        monkeypatch.setattr(Path, "unlink", fail)
        waiting = await spooling.send("t", b"x" * 700)
        async with asyncio.timeout(20):
            await spooling.flush()
        assert waiting.done()
        assert spooling.spooled.records == 0
        monkeypatch.undo()
        await spooling.send("t", b"1")
        await spooling.flush()
        assert cluster.committed(0) == [b"x" * 700, b"1"]


async def test_after_a_death_what_was_rejected_is_not_tried_again(tmp_path: Path) -> None:
    async with spool_cluster() as cluster:
        spooling = producer(cluster, tmp_path, max_block_ms=100)
        await spooling.start()
        cluster.held[26] = asyncio.Event()  # EndTxn: the records behind it are not committed
        await spooling.send("nobody", b"x")
        await spooling.send("t", b"0")
        await until(lambda: spooling.spooled.rejected == 1 and cluster.waiting)
        await die(spooling)
        cluster.held.pop(26).set()
        async with producer(cluster, tmp_path, max_block_ms=100) as two:
            await two.flush()
            assert two.spooled.rejected == 1
        assert cluster.committed(0) == [b"0"]


async def test_a_cluster_that_forbids_is_asked_again_until_it_does_not(tmp_path: Path) -> None:
    """A mistake in the cluster's settings costs no record."""
    async with spool_cluster() as cluster:
        cluster.refuse_offsets = ErrorCode.GROUP_AUTHORIZATION_FAILED
        async with producer(cluster, tmp_path) as spooling:
            await spooling.send("t", b"0")
            await until(lambda: "GROUP_AUTHORIZATION_FAILED" in str(spooling.spooled.error))
            cluster.refuse_offsets = ErrorCode.NONE
            await spooling.flush()
            assert spooling.spooled.error is None
        assert cluster.committed(0) == [b"0"]


async def test_a_partition_without_a_leader_holds_nobody_else_up(tmp_path: Path) -> None:
    """Read-committed consumers wait for open transactions, so none is begun while a partition is unavailable."""
    async with spool_cluster(partitions=3) as cluster:
        async with producer(cluster, tmp_path) as spooling:
            await spooling.send_and_wait("t", b"0", partition=0)
            lead(cluster, 2, -1)
            for value in numbers(60, 1):
                await spooling.send("t", value, partition=int(value) % 3)
            began_s = asyncio.get_running_loop().time()
            await until(
                lambda: cluster.committed(1) == [b"1"] and "t-2 has no leader" in str(spooling.spooled.error)
            )
            assert asyncio.get_running_loop().time() - began_s < 3, (
                "the transaction that met it is aborted at once"
            )
            written, asked = [list(log.values) for log in cluster.logs], len(cluster.asked)
            for _ in range(100):
                assert not cluster.hanging()
                await asyncio.sleep(0.005)
            assert [log.values for log in cluster.logs] == written, "nothing is written again and again"
            assert len(cluster.asked) == asked, "no transaction is begun"
            lead(cluster, 2, 0)
            await spooling.flush()
            assert spooling.spooled.error is None
        assert [cluster.committed(partition) for partition in range(3)] == by_three(61)
        copies = [
            len(log.values) - len(values) for log, values in zip(cluster.logs, by_three(61), strict=True)
        ]
        assert all(number <= 20 for number in copies), f"one at most, of the chunk that met it: {copies}"


@pytest.mark.parametrize("version", [1, 2])
async def test_a_partition_that_takes_nothing_is_left_to_itself_within_seconds(
    version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The partition has too few replicas, which no client can know before."""
    monkeypatch.setattr(delivery_module, "ATTEMPT_S", 0.3)
    async with spool_cluster(version, partitions=3) as cluster:
        admits, short = cluster.admits, True

        def lacking(request: ProduceRequest, version: int, index: int, header: BatchHeader) -> ErrorCode:
            if short and index == 2:
                return ErrorCode.NOT_ENOUGH_REPLICAS
            return admits(request, version, index, header)

        cluster.admits = lacking  # type: ignore[method-assign]
        async with producer(cluster, tmp_path) as spooling:
            for value in numbers(60):
                await spooling.send("t", value, partition=int(value) % 3)
            await until(lambda: "t-2 took no record within 0.3 s" in str(spooling.spooled.error))
            await until(lambda: cluster.committed(0) and cluster.committed(1))
            written = [len(log.values) for log in cluster.logs]
            held = 0
            for _ in range(200):
                held += bool(cluster.hanging())
                await asyncio.sleep(0.005)
            assert not held, "the transactions of that partition touch no other"
            assert [len(log.values) for log in cluster.logs] == written
            waiting = [await spooling.send("t", value) for value in numbers(5, 60)]
            short = False
            await spooling.flush()
            assert {(await future).partition for future in waiting} <= {0, 1, 2}
            assert spooling.spooled.error is None
        found = [cluster.committed(partition) for partition in range(3)]
        assert sorted((value for values in found for value in values), key=int) == numbers(65)
        assert all(values == sorted(values, key=int) for values in found)
        assert len(cluster.logs[0].values) <= 3 * len(found[0])


@pytest.mark.parametrize("which", ["oldest", "newest"])
async def test_a_file_that_was_deleted_is_told_once_and_ends_the_spool(
    which: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    small = {"max_request_size": 1_000, "batch_size": 500, "spool_bytes_max": 16_000}
    async with producer(NOWHERE, tmp_path, **small) as spooling:
        futures = [await spooling.send("t", b"x" * 700) for _ in range(8)]
        gone = files(tmp_path)[0 if which == "oldest" else -1]
        gone.unlink()
        problem = f"{gone} was deleted, and its records with it"
        for future in futures:
            with pytest.raises(SpoolUnusable) as failed:
                await future
            assert problem in str(failed.value)
        for use in (spooling.flush, spooling.sync, lambda: spooling.send("t", b"y")):
            with pytest.raises(SpoolUnusable, match="was deleted, and its records with it"):
                await use()
        assert isinstance(spooling.spooled.error, SpoolUnusable)
        assert caplog.text.count("was deleted") == 1
    async with spool_cluster() as cluster, producer(cluster, tmp_path, **small) as two:
        await two.send("t", b"z")
        await two.flush()
        found = cluster.committed(0)
        assert found[-1] == b"z"
        assert 0 < len(found) < 9, "the files that are left are delivered by the next producer"


async def test_a_file_that_is_deleted_is_noticed_while_the_cluster_is_there(tmp_path: Path) -> None:
    async with spool_cluster() as cluster, producer(cluster, tmp_path) as spooling:
        await spooling.send_and_wait("t", b"0")
        cluster.refuse_offsets = ErrorCode.GROUP_AUTHORIZATION_FAILED
        lost = await spooling.send("t", b"1")
        await until(lambda: "GROUP_AUTHORIZATION_FAILED" in str(spooling.spooled.error))
        (gone,) = files(tmp_path)
        gone.unlink()
        with pytest.raises(SpoolUnusable, match="was deleted"):
            await lost


async def test_a_transaction_is_shorter_than_its_timeout(tmp_path: Path) -> None:
    async with spool_cluster(partitions=2) as cluster:
        async with producer(cluster, tmp_path, transaction_timeout_ms=600) as spooling:
            await spooling.send_and_wait("t", b"0", partition=0)
            cluster.held[0] = asyncio.Event()  # Produce
            began_s = asyncio.get_running_loop().time()
            await spooling.send("t", b"1", partition=1)
            await until(lambda: "t-1 took no record within 0.4 s" in str(spooling.spooled.error))
            assert asyncio.get_running_loop().time() - began_s < 5
            cluster.held.pop(0).set()
            await spooling.flush()
        assert cluster.committed(1) == [b"1"]


def lead(cluster: SpoolCluster, partition: int, leader: int) -> None:
    cluster.logs[partition].leader = leader
    cluster.logs[partition].leader_epoch += 1


def by_three(count: int) -> list[list[bytes]]:
    return [[value for value in numbers(count) if int(value) % 3 == partition] for partition in range(3)]


async def test_a_cluster_that_comes_back_gets_what_waited(tmp_path: Path) -> None:
    async with spool_cluster() as cluster:
        async with producer(cluster, tmp_path) as spooling:
            await spooling.send_and_wait("t", b"0")
            await cluster.stop()
            futures = [await spooling.send("t", value) for value in numbers(50, 1)]
            await until(lambda: spooling.spooled.error is not None)
            await cluster.restart()
            await spooling.flush()
            assert [future.result().offset for future in futures] == list(range(1, 51))
        assert cluster.committed(0) == numbers(51)


async def test_nothing_is_kept_of_a_future_that_was_dropped(tmp_path: Path) -> None:
    async with producer(NOWHERE, tmp_path) as spooling:
        dropped = ref(await spooling.send("t", b"0"))
        calls: list[object] = []
        (await spooling.send("t", b"1")).add_done_callback(calls.append)
        held = await spooling.send("t", b"2")
        gc.collect()
        assert dropped() is None
    with pytest.raises(LeftInSpool):
        await held
    await asyncio.sleep(0)
    assert len(calls) == 1  # its callback kept it


async def test_sync_takes_a_spool_and_keeps_what_was_sent(tmp_path: Path) -> None:
    async with producer(NOWHERE, tmp_path) as spooling:
        await spooling.send("t", b"0")
        await spooling.sync()
    with pytest.raises(KafkaError, match="spool_dir"):
        await Producer().sync()
    assert Producer().spooled.records == 0


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"transactional_id": "x"}, "transactional_id"),
        ({"acks": 1}, "acks"),
        ({"enable_idempotence": False}, "idempotence"),
        ({"large_message_segment_size": 1000}, "spool_dir excludes large_message_segment_size"),
        ({"audit_topic": "audit", "audit_bucket_ms": 7}, "audit_bucket_ms"),
        ({"spool_bytes_max": 4095, "max_request_size": 1024, "batch_size": 512}, "4096"),
    ],
)
def test_what_does_not_go_with_a_spool_is_refused_by_name(
    options: dict[str, Any], named: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=named):
        producer(NOWHERE, tmp_path, **options)
    assert not list(tmp_path.iterdir())


async def test_a_full_disk_keeps_what_is_rejected_in_the_spool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with spool_cluster() as cluster:
        async with producer(cluster, tmp_path, max_block_ms=50) as spooling, asyncio.timeout(60):
            (tmp_path / "rejected").mkdir()  # nothing can be written there
            lost = await spooling.send("nobody", b"x")
            await spooling.send("t", b"0")
            await until(lambda: "rejected takes no record" in str(spooling.spooled.error))
            assert spooling.spooled.records == 2
            (tmp_path / "rejected").rmdir()
            await spooling.flush()
            assert isinstance(lost.exception(), KafkaError)
            assert spooling.spooled.rejected == 1
        assert cluster.committed(0) == [b"0"]


async def test_a_folder_that_cannot_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(SpoolUnusable, match="file/spool cannot be opened"):
        await producer(NOWHERE, tmp_path / "file" / "spool").start()


async def test_a_damaged_identity_is_named(tmp_path: Path) -> None:
    async with producer(NOWHERE, tmp_path) as spooling:
        await spooling.send("t", b"0")
    identity = tmp_path / "identity"
    good = identity.read_bytes()
    assert json.loads(good.splitlines()[0])["format"] == 1
    identity.write_bytes(good.replace(b'"run": 1', b'"run": 0'))
    with pytest.raises(SpoolUnusable, match=r"identity.*checksum"):
        await producer(NOWHERE, tmp_path).start()
    identity.unlink()
    with pytest.raises(SpoolUnusable, match="no file 'identity'"):
        await producer(NOWHERE, tmp_path).start()


async def test_a_damaged_place_does_not_stop_delivery(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with producer(NOWHERE, tmp_path) as spooling:
        for value in numbers(5):
            await spooling.send("t", b"value " + value)
    [file] = files(tmp_path)
    file.write_bytes(file.read_bytes().replace(b"value 2", b"damaged"))
    async with spool_cluster() as cluster:
        with caplog.at_level(logging.ERROR):
            async with producer(cluster, tmp_path) as two:
                assert (two.spooled.records, two.spooled.damaged) == (4, 1)
                await two.flush()
        assert cluster.committed(0) == [b"value 0", b"value 1", b"value 3", b"value 4"]
    assert str(file) in caplog.text


async def test_records_for_partitions_that_are_added_are_delivered_and_those_for_others_rejected_soon(
    tmp_path: Path,
) -> None:
    """The producer waits for a partition only once, however many records name it."""
    async with spool_cluster() as cluster, producer(cluster, tmp_path, max_block_ms=300) as spooling:
        await spooling.send_and_wait("t", b"known", partition=0)
        beyond = [await spooling.send("t", b"?", partition=7) for _ in range(40)]
        cluster.fates.append([])
        cluster.logs.append(PartitionLog())
        added = [await spooling.send("t", b"%d" % number, partition=1) for number in range(3)]
        async with asyncio.timeout(25):
            await spooling.flush()
        assert [(await delivery).partition for delivery in added] == [1, 1, 1]
        for delivery in beyond:
            assert "none numbered 7" in str(delivery.exception())
        assert cluster.committed(1) == numbers(3)
