"""Backups and restorations by `ottla.Admin` and `ottla.sync.Admin`, with a cluster."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import ottla.sync
from ottla import (
    Admin,
    BackupProgress,
    BackupRefused,
    BackupUnusable,
    NewTopic,
    ObjectStoreFailed,
    Producer,
    RestoreProgress,
)
from ottla.client.backup import lease
from tests.cluster import RunningCluster, running_cluster
from tests.integration.mirroring import records_of

pytestmark = pytest.mark.xdist_group("backups")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster"), quorum=1, brokers=1) as cluster:
        yield cluster


def new_name() -> str:
    return f"backup-{uuid.uuid4().hex[:8]}"


async def write(cluster: RunningCluster, topic: str, count: int) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for number in range(count):
            await producer.send_and_wait(topic, b"%d" % number, partition=number % 2)


async def test_a_program_makes_lists_verifies_prunes_and_restores_a_backup(
    cluster: RunningCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "RENEWED_EVERY_S", 0.05)
    url, topic = tmp_path.as_uri(), new_name()
    async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        with pytest.raises(BackupUnusable, match="there is no backup in"):
            await admin.list_backup(url)
        await admin.create_topics([NewTopic(topic, 2, 1, configs={"retention.ms": "8640000000"})])
        await write(cluster, topic, 5)
        told: list[BackupProgress] = []
        first = await admin.create_backup(url, topics=topic, groups="", progress=told.append)
        assert (first.cut, first.is_consistent, first.partitions, first.offsets) == ("1-1", True, 2, 5)
        assert [(each.name, each.settings) for each in first.topics] == [
            (topic, {"retention.ms": "8640000000"})
        ]
        assert 0 < told[-1].size == first.copied
        assert (told[-1].partitions_done, told[-1].partitions, told[-1].offsets) == (2, 2, 5)

        await write(cluster, topic, 3)
        async with await admin.open_backup(url, topics=topic, groups="") as backup:
            second, third = await backup.cut(), await backup.cut()
            with pytest.raises(BackupRefused, match="is running"):
                await admin.create_backup(url, topics=topic)
        assert (second.offsets, third.offsets, third.copied) == (8, 8, 0)
        assert [cut.cut for cut in await admin.list_backup(url)] == ["1-1", "2-1", "2-2"]

        steps: list[tuple[int, int]] = []
        found = await admin.verify_backup(url, progress=lambda done, total: steps.append((done, total)))
        assert (found.cuts, found.damages, found.broken_cuts) == (3, (), ())
        assert steps[-1] == (found.size, found.size)

        planned = await admin.prune_backup(url, keep=1, validate_only=True)
        assert len(await admin.list_backup(url)) == 3
        pruned = await admin.prune_backup(
            url, keep=1, progress=lambda done, total: steps.append((done, total))
        )
        assert planned == pruned
        assert (pruned.cuts, pruned.kept, pruned.segments) == (("1-1", "2-1"), ("2-2",), 0)
        assert steps[-1] == (2, 2)

        copy = f"{topic}-copy"
        expected = await admin.restore_backup(url, renames={topic: copy}, validate_only=True)
        assert copy not in await admin.list_topics()
        seen: list[RestoreProgress] = []
        restored = await admin.restore_backup(url, renames={topic: copy}, progress=seen.append)
        assert expected == restored
        assert [(each.name, each.source, each.offsets) for each in restored.topics] == [(copy, topic, 8)]
        assert {"listing", "creating", "copying", "opening"} <= {each.state for each in seen}
        with pytest.raises(BackupRefused, match="nothing is restored over a topic"):
            await admin.restore_backup(url)
        with pytest.raises(BackupUnusable, match=r"the backup has no cut 9-9: its cuts are 2-2 of "):
            await admin.restore_backup(url, as_of="9-9")
        with pytest.raises(BackupUnusable, match=r"the backup has no cut up to 20.*Z: its cuts are"):
            await admin.restore_backup(url, as_of=datetime.now(UTC) - timedelta(days=1))
        with pytest.raises(
            BackupUnusable, match="'other' cannot be renamed to 'x': the restored topics have no"
        ):
            await admin.restore_backup(url, renames={"other": "x"})
    assert await records_of(cluster.bootstrap, topic) == await records_of(cluster.bootstrap, copy)


def test_a_program_without_an_event_loop_does_the_same(cluster: RunningCluster, tmp_path: Path) -> None:
    url, topic = tmp_path.as_uri(), new_name()
    at = {"bootstrap_servers": cluster.bootstrap}
    with ottla.sync.Admin(**at) as admin, ottla.sync.Producer(**at) as producer:
        admin.create_topics([NewTopic(topic, 2, 1)])
        producer.send(topic, b"one", partition=0).result()
        with admin.open_backup(url, topics=topic, groups="") as backup:
            first = backup.cut()
            producer.send(topic, b"two", partition=1).result()
            second = backup.cut()
        third = admin.create_backup(url, topics=topic, groups="")
        assert [(cut.cut, cut.offsets) for cut in (first, second, third)] == [
            ("1-1", 1),
            ("1-2", 2),
            ("2-1", 2),
        ]
        assert [cut.cut for cut in admin.list_backup(url)] == ["1-1", "1-2", "2-1"]
        assert admin.verify_backup(url).damages == ()
        copy = f"{topic}-copy"
        restored = admin.restore_backup(url, as_of=first.cut, renames={topic: copy}, listen="127.0.0.1")
        assert (restored.cut.cut, [each.offsets for each in restored.topics]) == ("1-1", [1])
        assert admin.prune_backup(url, older_than=datetime.now(UTC)).kept == ("2-1",)
        assert {topic, copy} <= set(admin.list_topics())


async def test_a_store_is_read_without_a_cluster(cluster: RunningCluster, tmp_path: Path) -> None:
    url = tmp_path.as_uri()
    async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        made = await admin.create_backup(url, topics="none-of-them", groups="")
    nowhere = Admin(bootstrap_servers="nowhere.invalid:1")
    assert [cut.cut for cut in await nowhere.list_backup(url)] == [made.cut]
    assert (await nowhere.verify_backup(url)).cuts == 1
    assert (await nowhere.prune_backup(url, keep=1)).kept == (made.cut,)
    with pytest.raises(ObjectStoreFailed, match=r"the folder .*/missing of the store does not exist"):
        await nowhere.verify_backup(f"{url}/missing")
