"""The example database with real processes: masters die, sleep and come back, and no history contradicts itself."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.replicated_database.changes import Names, Statement, partition_of
from examples.replicated_database.master import Doubtful, Master
from examples.replicated_database.node import make_topics, set_session
from examples.replicated_database.replica import Replica
from ottla import GROUP_RESOURCE, Admin, Consumer, TopicPartition
from ottla.cli.local_cluster.ports import free_ports
from tests.cluster import RunningCluster, running_cluster, wait_until
from tests.examples.bank import PARTITIONS, Bank, log_of, reigning
from tests.examples.database_nodes import ROOT, DatabaseNode, node_of, running
from tests.faults.workload import SESSIONS
from tests.integration.history import SMALL_CLUSTER

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    settings = SMALL_CLUSTER | SESSIONS | {"broker.session.timeout.ms": "2000"}
    with running_cluster(
        tmp_path_factory.mktemp("examples"), quorum=1, brokers=3, settings=settings
    ) as found:
        yield found


def test_masters_are_killed_and_sleep_and_nothing_is_lost(cluster: RunningCluster, tmp_path: Path) -> None:
    nodes = [node_of(number, tmp_path, cluster.bootstrap, "bank") for number in range(3)]
    with running(nodes):
        with Bank(cluster.bootstrap, "bank", nodes) as bank:
            bank.wait_for_transfers(10)
            killed = bank.master_of(0)
            killed.kill9()
            bank.wait_for_transfers(10)
            killed.restart()
            slept = bank.master_of(1)
            slept.pause()
            wait_until(lambda: replaced(bank, slept, 1), "another master", 60)
            bank.wait_for_transfers(5)
            with bank.asking(slept, 1):  # it considers itself the master
                slept.resume()
            bank.wait_for_transfers(5)
        bank.check()


async def settings_of(admin: Admin, group: str) -> dict[str, str | None]:
    return {entry.name: entry.value for entry in await admin.describe_configs(GROUP_RESOURCE, group)}


async def test_nodes_give_their_group_a_short_session(cluster: RunningCluster, tmp_path: Path) -> None:
    with running([node_of(0, tmp_path, cluster.bootstrap, "brief", "--session-ms", "3000")]) as (node,):
        with Bank(cluster.bootstrap, "brief", [node]) as bank:
            bank.wait_for_transfers(1)
        async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            configs = await settings_of(admin, Names("brief").masters)
    session, heartbeat = configs["consumer.session.timeout.ms"], configs["consumer.heartbeat.interval.ms"]
    assert (session, heartbeat) == ("3000", "1000")


async def test_a_session_that_the_cluster_refuses_leaves_the_group_as_it_is(
    cluster: RunningCluster, caplog: pytest.LogCaptureFixture
) -> None:
    await set_session(cluster.bootstrap, "refused", 300)
    assert "a session of 300 ms is refused" in caplog.text
    async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        configs = await settings_of(admin, "refused")
    assert configs["consumer.session.timeout.ms"] == SESSIONS["group.consumer.session.timeout.ms"]


def test_the_client_says_in_one_line_that_a_node_is_away() -> None:
    port = next(free_ports([]))
    command = [
        sys.executable,
        "-m",
        "examples.replicated_database.client",
        "view",
        f"127.0.0.1:{port}",
        "SELECT 1",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT)
    assert done.returncode == 1
    assert done.stderr.startswith(f"in doubt: 127.0.0.1:{port}: ")
    assert len(done.stderr.splitlines()) == 1


def replaced(bank: Bank, node: DatabaseNode, partition: int) -> bool:
    return any(
        partition in reigning(database_node) for database_node in bank.nodes if database_node is not node
    )


def test_a_new_node_begins_with_a_snapshot(cluster: RunningCluster, tmp_path: Path) -> None:
    """So does a node that was away for long, when the log was cut beyond its knowledge."""
    name, often = "branch", ("--snapshot-s", "0.5")
    nodes = [node_of(number, tmp_path, cluster.bootstrap, name, *often) for number in range(3)]
    newcomer = node_of(3, tmp_path, cluster.bootstrap, name, *often)
    with running(nodes), running([newcomer]):
        newcomer.kill9()  # before it has read anything
        with Bank(cluster.bootstrap, name, [*nodes, newcomer]) as bank:
            bank.wait_for_transfers(5)
            away = nodes[2]
            away.kill9()
            large = Statement("account-1", "INSERT INTO accounts VALUES ('large', 0, ?)", ["x" * 3_000_000])
            asyncio.run(bank.database.write(large))
            bank.wait_for_transfers(5)
            known = [away.place(partition)[1] for partition in range(PARTITIONS)]
            wait_until(lambda: is_cut_off(bank, known), "a log without the node's missing changes", 60)
            newcomer.restart()
            away.restart()
            bank.wait_for_transfers(10)
        bank.check()
        assert any(row[0] == "large" for row in newcomer.rows(partition_of("account-1", PARTITIONS)))


def is_cut_off(bank: Bank, known: list[int]) -> bool:
    log = asyncio.run(log_of(bank.bootstrap, bank.name))
    firsts = [min((change.scn for _, change in some if change.scn), default=0) for some in log]
    return any(first > scn + 1 for first, scn in zip(firsts, known, strict=True))


async def test_a_master_that_was_replaced_answers_no_read_from_old_rows(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    """The replaced master slept, so it does not know its successor, and has not read the successor's writes."""
    names, key = Names("replaced"), "account-1"
    index = partition_of(key, PARTITIONS)
    await make_topics(cluster.bootstrap, names, PARTITIONS, 3)
    insert = "INSERT INTO accounts VALUES (?, 0, '')"
    async with (
        asyncio.timeout(120),
        Consumer(bootstrap_servers=cluster.bootstrap, isolation_level="read_committed") as ends,
    ):
        ends.assign([TopicPartition(names.log, partition) for partition in range(PARTITIONS)])
        replicas = [
            Replica(cluster.bootstrap, names, tmp_path / str(number), PARTITIONS) for number in range(2)
        ]
        following = [asyncio.create_task(replica.follow()) for replica in replicas]
        former = Master(replicas[0], index, ends)
        await reigns(former)
        async with former.lead([Statement(key, insert, ["before"])]):
            pass
        assert (await former.read("SELECT id FROM accounts", []))[1] == [["before"]]
        following[0].cancel()  # asleep from here on
        await asyncio.wait(following[:1])
        latter = Master(replicas[1], index, ends)
        await reigns(latter)
        async with latter.lead([Statement(key, insert, ["after"])]):
            pass
        assert former.is_master, "it knows that it was replaced, so this shows nothing"
        with pytest.raises(Doubtful):
            await former.read("SELECT id FROM accounts", [])
        assert sorted((await latter.read("SELECT id FROM accounts", []))[1]) == [["after"], ["before"]]
        for master in (former, latter):
            await master.resign()
        following[1].cancel()
        await asyncio.wait(following[1:])


async def reigns(master: Master) -> None:
    while not master.is_master:
        await asyncio.sleep(0.05)
