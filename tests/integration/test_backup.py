"""`ottla backup` and `ottla cluster restore` with two clusters: what was backed up comes back, byte for byte."""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ottla import Admin, Consumer, NewTopic, Producer, TopicPartition
from ottla.client.admin import TOPIC_RESOURCE
from ottla.client.admin.backups.run import open_backup
from ottla.client.backup.names import DATA
from ottla.client.failures import ObjectStoreFailed, ObjectStoreUnavailable
from ottla.client.objects.opening import open_store
from ottla.client.objects.store import ObjectStore
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.records.record_batch import walk_batches
from tests.client.objects.s3_server import s3_server
from tests.cluster import RunningCluster, wait_until
from tests.commands import forked
from tests.integration.backed_up_transfers import back_up, check_cuts, check_restored, transfers
from tests.integration.mirroring import DEADLINE_S, ends_of, records_of
from tests.integration.restorations import backup_to, restore_from, run

ROOT = Path(__file__).parents[2]


def told(*words: str, code: int = 0) -> Any:
    """Return the JSON output of a command."""
    return json.loads(run(*words, "-o", "json", code=code).stdout)


def backed_up(cluster: RunningCluster, store: Path, *words: str) -> dict[str, Any]:
    """Make a cut, and return the row about it."""
    row: dict[str, Any] = told(*backup_to(store, cluster, *words))
    return row


def restored(cluster: RunningCluster, store: Path, *words: str) -> dict[str, Any]:
    """Restore a cut, and return the row about it."""
    row: dict[str, Any] = told(*restore_from(store, cluster, *words))
    return row


def names(count: int) -> list[str]:
    """Return names of topics that no other test has."""
    return [f"backup-{uuid.uuid4().hex[:8]}" for _ in range(count)]


async def create(cluster: RunningCluster, *topics: NewTopic) -> None:
    async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        await admin.create_topics(topics)


async def transact(cluster: RunningCluster, topics: Sequence[str], numbers: range, **producing: Any) -> None:
    """Write one value to all partitions in each transaction, and abort each fifth transaction."""
    async with Producer(
        bootstrap_servers=cluster.bootstrap, transactional_id=topics[0], linger_ms=0, **producing
    ) as producer:
        for number in numbers:
            transaction = await producer.begin(app_version=number)
            for topic in topics:
                for partition in range(2):
                    headers = [("number", b"%d" % number)]
                    await producer.send(topic, b"%d" % number, partition=partition, headers=headers)
            if number % 5 == 4:
                await transaction.abort()
            else:
                await transaction.commit()


async def raw_batches(bootstrap: str, topic: str, partition: int) -> list[bytes]:
    """Return the batches of a partition as a broker sends them, without the leader epoch. Markers lose the commit index
    of their cluster, so only their place, time and producer are compared."""
    async with Admin(bootstrap_servers=bootstrap) as admin:
        (info,) = await admin.describe_topics([topic])
        offset, end, batches = 0, (await ends_of(bootstrap, topic))[partition], []
        while offset < end:
            wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
            request = FetchRequest(
                max_wait_ms=100,
                min_bytes=1,
                max_bytes=1 << 20,
                topics=[FetchTopic(topic=topic, topic_id=info.id, partitions=[wanted])],
            )
            answer = await admin.session.cluster.ask(info.partitions[partition].leader, request)
            data = memoryview(answer.responses[0].partitions[0].records or b"")
            for position, header in walk_batches(data, partial_tail=True):
                batch = data[position : position + header.size]
                without_epoch = bytes(batch[:12]) + bytes(batch[16:])
                marker = repr(header._replace(crc=0, partition_leader_epoch=0, batch_length=0)).encode()
                batches.append(marker if header.is_control else without_epoch)
                offset = header.next_offset
        return batches


async def test_a_cluster_comes_back_byte_for_byte_with_ids_settings_offsets_and_versions(
    source_and_target: tuple[RunningCluster, RunningCluster], store: Path
) -> None:
    source, target = source_and_target
    one, two = topics = names(2)
    await create(
        source,
        NewTopic(one, 2, 1, configs={"retention.ms": "8640000000", "min.insync.replicas": "1"}),
        NewTopic(two, 2, 1, configs={"compression.type": "zstd"}),
    )
    await transact(source, topics, range(12), compression_type="lz4")
    group = f"g-{one}"
    async with Consumer(
        one, bootstrap_servers=source.bootstrap, group_id=group, auto_offset_reset="earliest"
    ) as consumer:
        await consumer.getone()
        await consumer.commit({TopicPartition(one, 0): 3, TopicPartition(one, 1): 5})
    pattern = f"{one}|{two}"
    first = backed_up(source, store, "--topics", pattern, "--groups", group)
    assert (first["cut"], first["topics"], first["partitions"], first["consistent"]) == ("1-1", 2, 4, True)
    await transact(source, topics, range(12, 15))
    second = backed_up(source, store, "--topics", pattern, "--groups", group)
    assert 0 < second["new_bytes"] < first["new_bytes"]
    assert [row["cut"] for row in told("backup", "list", store.as_uri())] == ["1-1", "2-1"]
    assert told("backup", "verify", store.as_uri())["damages"] == []

    planned = restored(target, store, "--dry-run")
    assert {row["topic"]: row["bytes"] > 0 for row in planned["topics"]} == {one: True, two: True}
    done = restored(target, store)
    assert (done["cut"], done["topics"], done["partitions"]) == ("2-1", 2, 4)

    for topic in topics:
        for partition in range(2):
            assert await raw_batches(source.bootstrap, topic, partition) == await raw_batches(
                target.bootstrap, topic, partition
            )
        assert await records_of(source.bootstrap, topic, "read_committed") == await records_of(
            target.bootstrap, topic, "read_committed"
        )
    async with (
        Admin(bootstrap_servers=source.bootstrap) as theirs,
        Admin(bootstrap_servers=target.bootstrap) as ours,
    ):
        assert {topic.name: topic.id for topic in await theirs.describe_topics(topics)} == {
            topic.name: topic.id for topic in await ours.describe_topics(topics)
        }
        assert await ours.committed_offsets(group) == {TopicPartition(one, 0): 3, TopicPartition(one, 1): 5}
        settings = {
            (topic, entry.name): entry.value
            for topic in topics
            for entry in await ours.describe_configs(TOPIC_RESOURCE, topic)
            if entry.source == "topic"
        }
        assert settings[one, "retention.ms"] == "8640000000"
        assert settings[one, "min.insync.replicas"] == "1"
        assert settings[two, "compression.type"] == "zstd"
        assert await ours.describe_mirrors() == []
    async with Producer(bootstrap_servers=target.bootstrap, transactional_id=one) as producer:
        assert producer.last_app_version == 13
    await transact(target, topics, range(15, 17))
    assert run(*restore_from(store, target), code=1).stderr.count("nothing is restored over a topic")


async def test_an_open_transaction_is_left_out_and_an_earlier_cut_comes_back_under_another_name(
    source_and_target: tuple[RunningCluster, RunningCluster], store: Path
) -> None:
    source, _ = source_and_target
    (topic,) = names(1)
    await create(source, NewTopic(topic, 2, 1))
    await transact(source, [topic], range(4))
    async with Producer(bootstrap_servers=source.bootstrap, transactional_id=f"open-{topic}") as producer:
        transaction = await producer.begin()
        await (await producer.send(topic, b"open", partition=0))
        cut = backed_up(source, store, "--topics", topic)["cut"]
        await producer.send(topic, b"open", partition=1)
        await transaction.commit()
    backed_up(source, store, "--topics", topic)
    # The cluster of the backup itself, with the topic still there.
    restored(source, store, "--as-of", cut, "--topics", topic, "--rename", f"{topic}={topic}-early")
    restored(source, store, "--topics", topic, "--rename", f"{topic}={topic}-late")
    early = await records_of(source.bootstrap, f"{topic}-early", "read_committed")
    late = await records_of(source.bootstrap, f"{topic}-late", "read_committed")
    assert [record[3] for record in early[0]] == [b"0", b"1", b"2", b"3"]
    assert late == await records_of(source.bootstrap, topic, "read_committed")
    assert [record[3] for record in late[0]] == [b"0", b"1", b"2", b"3", b"open"]


async def test_a_deleted_topic_comes_back_into_its_cluster_under_another_id(
    source_and_target: tuple[RunningCluster, RunningCluster], store: Path
) -> None:
    """Readers that keep positions by topic id may be ahead of the cut, and would skip the records written next."""
    source, _ = source_and_target
    (topic,) = names(1)
    await create(source, NewTopic(topic, 2, 1))
    await transact(source, [topic], range(4))
    backed_up(source, store, "--topics", topic, "--groups", "")
    before = await records_of(source.bootstrap, topic)
    async with Admin(bootstrap_servers=source.bootstrap) as admin:
        ids = set()
        for _ in range(3):
            (described,) = await admin.describe_topics([topic])
            ids.add(described.id)
            await transact(source, [topic], range(4, 6))
            await admin.delete_topics([topic])
            restored(source, store)
            assert await records_of(source.bootstrap, topic) == before
    assert len(ids) == 3


async def test_one_changed_byte_is_found_and_is_not_restored(
    source_and_target: tuple[RunningCluster, RunningCluster], store: Path
) -> None:
    source, target = source_and_target
    (topic,) = names(1)
    await create(source, NewTopic(topic, 2, 1))
    await transact(source, [topic], range(8))
    backed_up(source, store, "--topics", topic, "--groups", "")
    segment = max(
        (store / "data").rglob("*.*"), key=lambda path: path.stat().st_size if path.is_file() else -1
    )
    content = bytearray(segment.read_bytes())
    content[15] ^= 1  # a leader epoch, which no checksum of a batch covers
    segment.chmod(0o600)
    segment.write_bytes(content)
    found = told("backup", "verify", store.as_uri(), code=1)
    assert found["broken_cuts"] == ["1-1"]
    assert segment.name in found["damages"][0]
    complaint = run(*restore_from(store, target), code=1).stderr
    assert "its SHA-256 is another" in complaint


async def test_deleted_records_are_reported_and_pruning_keeps_what_cuts_need(
    source_and_target: tuple[RunningCluster, RunningCluster], store: Path
) -> None:
    source, target = source_and_target
    (topic,) = names(1)
    await create(source, NewTopic(topic, 2, 1))
    await transact(source, [topic], range(10))
    backed_up(source, store, "--topics", topic)
    ends = await ends_of(source.bootstrap, topic)
    await transact(source, [topic], range(10, 20))
    async with Admin(bootstrap_servers=source.bootstrap) as admin:
        await admin.delete_records({TopicPartition(topic, 0): ends[0] + 4})
    missed = backed_up(source, store, "--topics", topic)["missed"]
    assert missed == [{"topic": topic, "partition": 0, "first": ends[0], "end": ends[0] + 4}]
    planned = told("backup", "prune", store.as_uri(), "--keep", "1", "--dry-run")
    assert (planned["kept_cuts"], planned["to_delete_cuts"], planned["to_delete_segments"]) == (1, 1, 1)
    run("backup", "prune", store.as_uri(), "--keep", "1", "--yes")
    assert told("backup", "verify", store.as_uri())["damages"] == []
    restored(target, store)
    assert await records_of(source.bootstrap, topic) == await records_of(target.bootstrap, topic)


def test_a_second_backup_is_refused_and_a_signal_gives_the_store_free(
    source_and_target: tuple[RunningCluster, RunningCluster], store: Path, tmp_path: Path
) -> None:
    source, target = source_and_target
    words = backup_to(store, source)
    with (tmp_path / "log").open("w") as log:
        argv = [sys.executable, "-m", "ottla", *words, "--every", "1s"]
        running = forked(argv, cwd=tmp_path, env=os.environ, output=log.fileno())
    try:
        wait_until(lambda: len(list(store.glob("cuts/*"))) > 1, "two cuts")
        assert "is running" in run(*words, code=1).stderr
        running.terminate()
        assert running.wait(DEADLINE_S) == 0
    finally:
        running.kill()
    assert " cut 1-2: " in (tmp_path / "log").read_text()
    assert told(*words)["cut"] == "2-1"
    refused = run(*backup_to(store, target), code=1).stderr
    assert "needs another URL" in refused


async def test_every_cut_of_a_bank_has_whole_transfers_and_the_offsets_that_were_committed(
    source_and_target: tuple[RunningCluster, RunningCluster], store: Path
) -> None:
    source, target = source_and_target
    (topic,) = names(1)
    async with transfers(source.bootstrap, topic, seed=0):
        await back_up(source.bootstrap, topic, store, 10, random.Random(0))
    assert await check_cuts(store, topic) > 0
    cuts = told("backup", "list", store.as_uri())
    restored(target, store, "--as-of", cuts[5]["cut"])
    assert await check_restored(target.bootstrap, topic) > 0


async def test_backups_and_restorations_that_are_killed_leave_no_damage_and_are_finished_by_the_next(
    source_and_target: tuple[RunningCluster, RunningCluster], store: Path
) -> None:
    source, _ = source_and_target
    (topic,) = names(1)
    async with transfers(source.bootstrap, topic, seed=1):
        await asyncio.to_thread(kill, source, store, topic, "backup", "5")
    assert told("backup", "verify", store.as_uri())["damages"] == []
    assert await check_cuts(store, topic) > 0
    await asyncio.to_thread(kill, source, store, topic, "restore", "_copied,promote_mirror")
    for step in ("_copied", "promote_mirror"):
        found = await records_of(source.bootstrap, f"{topic}{step}", "read_committed")
        assert sum(int(record[3]) for some in found.values() for record in some) == 0


class FullStore:
    """A store whose disk is full now and then, and that sometimes keeps an object although it reports a failure."""

    def __init__(self, store: ObjectStore, chance: random.Random) -> None:
        self._store = store
        self._chance = chance
        self.url, self.get, self.list, self.delete = store.url, store.get, store.list, store.delete

    async def put_new(self, key: str, data: bytes) -> None:
        fate = self._chance.random() if key.startswith(DATA) else 1.0
        if fate < 0.03:
            raise ObjectStoreFailed(f"the object {key} was not created: No space left on device ({self.url})")
        await self._store.put_new(key, data)
        if fate < 0.08:
            raise ObjectStoreUnavailable(f"the object {key} was not created within 1 s ({self.url})")


async def test_a_full_disk_costs_cuts_and_damages_none(
    source_and_target: tuple[RunningCluster, RunningCluster], store: Path
) -> None:
    source, _ = source_and_target
    (topic,) = names(1)
    full, failed = FullStore(open_store(store.as_uri(), 30), random.Random(5)), 0
    async with transfers(source.bootstrap, topic, seed=2), Admin(bootstrap_servers=source.bootstrap) as admin:
        backup = await open_backup(admin, full, topics=topic, groups=f"{topic}-.*")
        for _ in range(20):
            try:
                await backup.cut()
            except ObjectStoreFailed:
                failed += 1
        await backup.close()
    made = len(told("backup", "list", store.as_uri()))
    assert (made > 0, failed > 0, made + failed) == (True, True, 20)
    assert await check_cuts(store, topic) > 0


async def test_a_bucket_that_answers_errors_and_loses_answers_gets_a_whole_backup(
    source_and_target: tuple[RunningCluster, RunningCluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, _ = source_and_target
    (topic,) = names(1)
    await create(source, NewTopic(topic, 2, 1))
    await transact(source, [topic], range(8))
    with s3_server() as server:
        for name, value in {
            "AWS_ENDPOINT_URL": server.address,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "some-key",
            "AWS_SECRET_ACCESS_KEY": "some-secret",
            "AWS_REGION": "eu-west-1",
        }.items():
            monkeypatch.setenv(name, value)
        url = "s3://bucket/backups"
        for failures in (["503", "", "", "lost", "", ""] * 4, ["lost", "", "500", ""] * 4):
            server.failures = failures
            told("backup", "--to", url, "-b", source.bootstrap, "--topics", topic, "--groups", "")
            await transact(source, [topic], range(3))
        server.failures = ["500", "", "503", ""] * 2
        assert told("backup", "verify", url)["damages"] == []
        server.failures = ["lost", "", "503", ""] * 2
        words = ("--topics", topic, "--rename", f"{topic}={topic}-again")
        told("cluster", "restore", "--from", url, "-b", source.bootstrap, "--as-of", "1-1", *words)
    found = await records_of(source.bootstrap, f"{topic}-again", "read_committed")
    assert [record[3] for record in found[0]] == [b"0", b"1", b"2", b"3", b"5", b"6", b"7"]


def kill(cluster: RunningCluster, store: Path, topic: str, mode: str, chosen: str) -> None:
    """Run the program that kills."""
    module = "tests.integration.killed_backups"
    argv = [sys.executable, "-m", module, cluster.bootstrap, str(store), topic, mode, chosen]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=110, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
