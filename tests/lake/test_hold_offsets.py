"""The offsets that a worker commits so that retention waits for its tables."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest

from ottla import Admin, Producer, TopicPartition
from ottla.client.admin import TOPIC_RESOURCE
from ottla.lake import topic_table
from ottla.lake.hold_offsets import REPEAT_S, HoldOffsets
from ottla.lake.settings import TableSettings, table_settings
from ottla.protocol.errors import ErrorCode, KafkaError
from tests.cluster import RunningCluster
from tests.lake.written_tables import catalog, create, values, worker

cluster_test = [pytest.mark.cluster, pytest.mark.xdist_group("lake")]


def settings() -> TableSettings:
    found = table_settings("t", {"ottla.lake.enable": "true", "ottla.lake.hold": "true"})
    assert found is not None
    return found


@dataclass
class Opened:
    """An opened table."""

    settings: TableSettings = field(default_factory=settings)
    needed: Mapping[int, int] = field(default_factory=dict)


@dataclass
class Coordinator:
    """A coordinator that may fail."""

    failure: Exception | None = None
    commits: list[tuple[str, str, Mapping[int, int]]] = field(default_factory=list)

    async def commit_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Note a commit, or fail."""
        if self.failure is not None:
            raise self.failure
        self.commits.append((group, topic, offsets))


async def test_offsets_are_committed_when_they_change_at_each_opening_and_each_hour() -> None:
    clock, there, table = [0.0], Coordinator(), Opened(needed={0: 5})
    hold = HoldOffsets(cast(Any, there), lambda: clock[0])
    tables = [cast(Any, table)]
    await hold.opened(tables)
    await hold.written(tables)
    assert there.commits == [("ottla-lake-lake.t", "t", {0: 5})]
    table.needed = {0: 7}
    await hold.written(tables)
    clock[0] += REPEAT_S - 1
    await hold.written(tables)
    assert len(there.commits) == 2
    clock[0] += 1
    await hold.written(tables)
    await hold.opened(tables)
    assert [offsets for _, _, offsets in there.commits[2:]] == [{0: 7}, {0: 7}]
    table.settings = replace(table.settings, hold=False)
    await hold.opened(tables)
    assert len(there.commits) == 4


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED), "needs Read on the group ottla-lake-lake.t"),
        (TimeoutError(), "has not answered within 10 s"),
        (KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "nobody leads it"), "nobody leads it"),
    ],
    ids=["rights", "silence", "no coordinator"],
)
async def test_a_failure_is_logged_once_and_tried_again(
    caplog: pytest.LogCaptureFixture, failure: Exception, reason: str
) -> None:
    caplog.set_level(logging.INFO)
    there, table = Coordinator(failure), Opened(needed={0: 5})
    hold = HoldOffsets(cast(Any, there))
    tables = [cast(Any, table)]
    for _ in range(3):
        await hold.written(tables)
    (complaint,) = caplog.messages
    assert reason in complaint
    assert "Retention of its topic waits for it up to ottla.lake.hold.max.ms" in complaint
    there.failure = None
    await hold.written(tables)
    assert [offsets for _, _, offsets in there.commits] == [{0: 5}]
    assert caplog.messages[1:] == ["table lake.t: offsets are committed to group ottla-lake-lake.t again"]


class TestWithCluster:
    pytestmark = cluster_test

    async def test_a_group_has_the_first_offsets_that_a_table_would_read(
        self, cluster: RunningCluster, tmp_path: Path
    ) -> None:
        """They are those of open transactions, and of the position in the catalog. A new table has offsets at once."""
        await create(cluster, "needed", hold="true")
        first, second = (TopicPartition("needed", index) for index in (0, 1))
        async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            assert await worker(cluster, tmp_path, "needed").run()
            assert await admin.committed_offsets("ottla-lake-lake.needed") == {first: 0, second: 0}
            async with (
                Producer(bootstrap_servers=cluster.bootstrap) as plain,
                Producer(bootstrap_servers=cluster.bootstrap, transactional_id="needed-slow") as slow,
            ):
                await plain.send_and_wait("needed", b"a", partition=0)
                await slow.begin_transaction()
                await slow.send_and_wait("needed", b"slow", partition=0)
                for value in (b"b", b"c"):
                    for partition in (0, 1):
                        await plain.send_and_wait("needed", value, partition=partition)
                assert await worker(cluster, tmp_path, "needed").run()
                assert await admin.committed_offsets("ottla-lake-lake.needed") == {first: 1, second: 2}
                await slow.commit_transaction()
            assert await worker(cluster, tmp_path, "needed").run()
            assert await admin.committed_offsets("ottla-lake-lake.needed") == {first: 5, second: 2}

    async def test_without_the_setting_there_is_no_group(
        self, cluster: RunningCluster, tmp_path: Path
    ) -> None:
        await create(cluster, "freely", 1)
        async with (
            Admin(bootstrap_servers=cluster.bootstrap) as admin,
            Producer(bootstrap_servers=cluster.bootstrap) as producer,
        ):
            await producer.send_and_wait("freely", b"a")
            assert await worker(cluster, tmp_path, "freely").run()
            assert await admin.committed_offsets("ottla-lake-lake.freely") == {}
            await admin.alter_configs(TOPIC_RESOURCE, "freely", {"ottla.lake.hold": "true"})
            assert await worker(cluster, tmp_path, "freely").run()
            assert await admin.committed_offsets("ottla-lake-lake.freely") == {TopicPartition("freely", 0): 1}

    async def test_a_table_that_was_removed_from_the_catalog_sets_its_group_back(
        self, cluster: RunningCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await create(cluster, "removed", 1, hold="true")
        place = TopicPartition("removed", 0)
        async with (
            Admin(bootstrap_servers=cluster.bootstrap) as admin,
            Producer(bootstrap_servers=cluster.bootstrap) as producer,
        ):
            await producer.send_and_wait("removed", b"a")
            assert await worker(cluster, tmp_path, "removed").run()
            assert await admin.committed_offsets("ottla-lake-lake.removed") == {place: 1}
            catalog(tmp_path).drop_table("lake.removed")

            async def fails(*_: object) -> int:
                raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "the read fails")

            with monkeypatch.context() as patched:
                patched.setattr(topic_table.TopicTable, "read", fails)
                assert not await worker(cluster, tmp_path, "removed").run()
            assert await admin.committed_offsets("ottla-lake-lake.removed") == {place: 0}
            assert await worker(cluster, tmp_path, "removed").run()
            assert await admin.committed_offsets("ottla-lake-lake.removed") == {place: 1}
        assert values(tmp_path, "lake.removed") == {(0, 0): b"a"}

    async def test_offsets_without_rows_are_given_up_once_retention_has_waited_long(
        self, cluster: RunningCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Records of aborted transactions make no rows. Their offsets would be held, and count as lost afterwards."""
        await create(cluster, "aborted", 1, hold="true")
        place = TopicPartition("aborted", 0)
        async with (
            Admin(bootstrap_servers=cluster.bootstrap) as admin,
            Producer(bootstrap_servers=cluster.bootstrap, transactional_id="aborting") as producer,
        ):
            async with producer.transaction():
                await producer.send_and_wait("aborted", b"a")
            assert await worker(cluster, tmp_path, "aborted").run()
            await producer.begin_transaction()
            await producer.send_and_wait("aborted", b"never")
            await producer.abort_transaction()
            assert await worker(cluster, tmp_path, "aborted").run()
            assert await admin.committed_offsets("ottla-lake-lake.aborted") == {place: 2}
            monkeypatch.setattr(topic_table, "EMPTY_COMMIT_MS", 0)
            assert await worker(cluster, tmp_path, "aborted").run()
            assert await admin.committed_offsets("ottla-lake-lake.aborted") == {place: 4}
            await admin.delete_records({place: 4})
            assert await worker(cluster, tmp_path, "aborted").run(), "no record is lost"
        assert values(tmp_path, "lake.aborted") == {(0, 0): b"a"}
        assert len(catalog(tmp_path).load_table("lake.aborted").snapshots()) == 2
