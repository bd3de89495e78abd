"""Faust: a table in a changelog topic, moved between workers that come and go; workers and a broker are killed.

Without kills every count is exact. After a kill Faust reads uncommitted messages once more, and counts them again: it
promises each message at least once.
"""

from __future__ import annotations

import itertools
import json
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from tests.cluster import RunningCluster, wait_until
from tests.programs.environments import SCRIPTS, Environment
from tests.programs.process import Program
from tests.programs.topics import Input, Output, Sent, create_topics

pytestmark = pytest.mark.timeout(600)
FAUST = Environment("faust")
PARTITIONS = 3


def events(prefix: str) -> Iterator[Sent]:
    for number in itertools.count(1):
        yield Sent("events", f"key{number % 20}", f"{prefix}{number}")


def worker(cluster: RunningCluster, folder: Path, name: str) -> Program:
    return FAUST.program("faust_counts.py", folder / f"{name}.log", cluster.bootstrap, str(folder / name))


def numbers(output: Output) -> dict[str | None, list[int]]:
    """Return the counts of each key, in order."""
    found = defaultdict(list)
    for key, value in output.messages:
        found[key].append(int(value.split()[1]))
    return dict(found)


def go_on(totals: Output) -> None:
    totals.wait_for(totals.read() + 300, 120)


def test_a_table_moves_between_workers(cluster: RunningCluster, tmp_path: Path) -> None:
    admin = create_topics(cluster, "events", "totals", partitions=PARTITIONS)
    totals = Output(cluster.bootstrap, "totals", PARTITIONS)
    with worker(cluster, tmp_path, "ann") as ann:
        with Input(cluster.bootstrap, events("first"), 100) as given:
            go_on(totals)
        totals.wait_for(len(given.sent), 120)
        once = Counter(message.key for message in given.sent)
        assert numbers(totals) == {key: list(range(1, n + 1)) for key, n in once.items()}
        check_changelog(admin)
        with worker(cluster, tmp_path, "ben") as ben:
            with Input(cluster.bootstrap, events("second"), 100) as second:
                go_on(totals)
                ann.kill9()
                go_on(totals)
                ann.start()
                go_on(totals)
                kill_with_a_broker(cluster, ben, totals)
            for process in (
                ann,
                ben,
            ):  # at a rebalance Faust may pass over messages, and it does not commit those
                process.kill9()
                process.start()
            sent = [*given.sent, *second.sent]
            totals.wait_until(lambda: told(totals) >= {message.value for message in sent}, "all", 120)
            assert told(totals) == {message.value for message in sent}
            check_counts(sent, totals)


@pytest.mark.parametrize(
    ("order", "missing"),
    [("as-faust", range(11, 28)), ("seek-first", range(0))],
    ids=["as-faust", "seek-first"],
)
def test_faust_passes_over_messages_without_any_cluster(order: str, missing: range) -> None:
    """Once a table is restored, Faust resumes partitions, and seeks to the committed offsets after that.

    A message that arrives in between may advance its read position, and lower offsets are dropped afterwards.
    """
    argv = [str(FAUST.python), str(SCRIPTS / "faust_seek.py"), order]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    report = json.loads(done.stdout)
    assert report["offset"] == 41, "all up to 40 were fetched"
    assert set(range(11, 41)) - set(report["delivered"]) == set(missing)


def told(totals: Output) -> set[str]:
    """Return the events that were counted."""
    return {value.split()[0] for _, value in totals.messages}


def check_counts(sent: list[Sent], totals: Output) -> None:
    """Check that no count is lost with a worker: the last one of a key is that of all its messages, or more."""
    of_key = Counter(message.key for message in sent)
    assert all(of_key[key] <= found[-1] for key, found in numbers(totals).items())


def start_while_a_broker_is_away(worker: Program) -> None:
    """Start a worker, and restart it if it ended because it asked the absent broker.

    A broker that has died stays in the metadata for some seconds, as with Apache Kafka. Faust asks only the first
    broker of the metadata for the controller (`_get_controller_node`): its worker ends if that broker is away.
    """
    worker.start()

    def is_ready() -> bool:
        if "Worker ready" in worker.said:
            return True
        if not worker.alive:
            assert "NodeNotReadyError" in worker.said, worker.said[-3000:]
            worker.start()
        return False

    wait_until(is_ready, f"a worker that is ready in {worker.log}", 90)


def kill_with_a_broker(cluster: RunningCluster, running: Program, totals: Output) -> None:
    """Kill a worker and a leader of its input; results go on while the broker is away."""
    leader = cluster.leader("events", 0)
    assert leader is not None
    cluster.broker(leader).kill9()
    go_on(totals)
    running.kill9()
    start_while_a_broker_is_away(running)
    go_on(totals)
    cluster.broker(leader).restart()
    cluster.wait_until_in_sync("events", 60)


def check_changelog(admin: AdminClient) -> None:
    """Check that the changelog has the partitions and the settings that Faust requests."""
    name = "counter-table-changelog"
    assert len(admin.list_topics(name, timeout=30).topics[name].partitions) == PARTITIONS
    (answer,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, name)]).values()
    assert answer.result(30)["cleanup.policy"].value == "compact"
