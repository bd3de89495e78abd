"""Reassignments by `ottla console` in a real cluster, each also by the command that its preview shows."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla.client.admin import NewTopic
from ottla.client.connections.metadata import PartitionInfo
from ottla.sync import Admin, Producer
from ottla.testing import LocalCluster
from tests.console.fakes import hidden_fields, seen
from tests.console.test_console_of_a_cluster import PATIENCE_S, HttpBrowser, console

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=3, settings={"auto.leader.rebalance.enable": "false"}) as running:
        yield running


@pytest.fixture(scope="module")
def browser(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpBrowser]:
    log: Path = tmp_path_factory.mktemp("console") / "log"
    with console(cluster, "--allow-changes", log=log) as address:
        yield HttpBrowser(address)


@pytest.fixture
def admin(cluster: LocalCluster) -> Iterator[Admin]:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as running:
        yield running


def new_topic(admin: Admin, *replicas: list[int]) -> str:
    """Return the name of a new topic with these replicas of its partitions."""
    name = f"moved-{uuid.uuid4().hex[:8]}"
    admin.create_topics([NewTopic(name, assignments=dict(enumerate(replicas)))])
    return name


def until(admin: Admin, topic: str, is_so: Callable[[list[PartitionInfo]], bool]) -> None:
    """Return once the partitions of a topic are so."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        (found,) = admin.describe_topics([topic])
        partitions = [found.partitions[index] for index in sorted(found.partitions)]
        if is_so(partitions):
            return
        assert time.monotonic() < deadline, partitions
        time.sleep(0.1)


def change(
    cluster: LocalCluster, browser: HttpBrowser, address: str, *, by_command: bool, **fields: str
) -> str:
    """Send a form, and carry its preview out, or the command that the preview shows. Return the preview."""
    preview = browser.send(address, step="preview", **fields)
    if not by_command:
        browser.post(address, **hidden_fields(preview), step="apply")
        return seen(preview)
    shown = re.search(r'<pre class="command">([^<]+)</pre>', preview)
    assert shown is not None, seen(preview)
    script = f'ottla() {{ "{sys.executable}" -m ottla "$@"; }}; set -e -o pipefail\n{html.unescape(shown[1])}'
    environment = {**os.environ, "OTTLA_BOOTSTRAP": cluster.bootstrap_servers}
    subprocess.run(
        ["bash", "-c", script], env=environment, check=True, timeout=PATIENCE_S, capture_output=True
    )
    return seen(preview)


@pytest.mark.parametrize("by_command", [False, True])
def test_a_topic_moves_to_the_chosen_brokers(
    cluster: LocalCluster, browser: HttpBrowser, admin: Admin, by_command: bool
) -> None:
    topic = new_topic(admin, [1], [1], [2])
    fields = {"broker 2": "yes", "broker 3": "yes", "count": "2"}
    change(cluster, browser, f"/reassignments/topic?name={topic}", by_command=by_command, **fields)
    until(admin, topic, lambda found: all(set(info.replicas) == set(info.isr) == {2, 3} for info in found))
    fields = {"replicas": "0=1,2\n2=3", "limit": ""}
    change(cluster, browser, f"/reassignments/partitions?name={topic}", by_command=by_command, **fields)
    until(admin, topic, lambda found: (found[0].replicas, found[2].replicas) == ((1, 2), (3,)))
    fields = {"broker 1": "yes", "topics": topic}
    change(cluster, browser, "/reassignments/broker?id=3", by_command=by_command, **fields)
    until(admin, topic, lambda found: all(3 not in info.replicas for info in found))


@pytest.mark.parametrize("by_command", [False, True])
def test_a_slow_copy_is_cancelled_and_its_limit_lifted(
    cluster: LocalCluster, browser: HttpBrowser, admin: Admin, by_command: bool
) -> None:
    topic = new_topic(admin, [1])
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for _ in range(200):
            producer.send(topic, os.urandom(10_000))
    fields = {"replicas": "0=2", "limit": "0.001"}
    preview = change(
        cluster, browser, f"/reassignments/partitions?name={topic}", by_command=by_command, **fields
    )
    assert "1,000 bytes/s" in preview
    page = browser.until("/reassignments", lambda page: "broker 1, 2, 3: sends 1000 B/s at most" in page)
    assert f"{topic}-0 1 2 2 1 1.9 MiB" in page
    address = f"/reassignments/cancel?topic={topic}&partition=0"
    assert f"{topic}-0 2, 1 (adding 2, removing 1) 1" in change(
        cluster, browser, address, by_command=by_command
    )
    until(admin, topic, lambda found: found[0].replicas == (1,))
    browser.until("/reassignments", lambda page: "No partition is being reassigned" in page)
    change(cluster, browser, "/reassignments/unthrottle", by_command=by_command)
    browser.until("/reassignments", lambda page: "at most" not in page)


@pytest.mark.parametrize("by_command", [False, True])
def test_preferred_leaders_take_over(
    cluster: LocalCluster, browser: HttpBrowser, admin: Admin, by_command: bool
) -> None:
    topic = new_topic(admin, [1, 2], [2, 3], [3, 1])
    until(admin, topic, lambda found: [info.leader for info in found] == [1, 2, 3])
    address = f"/reassignments/partitions?name={topic}"
    change(cluster, browser, address, by_command=False, replicas="0=2,1\n1=3,2")  # leaders stay
    until(admin, topic, lambda found: [info.replicas[0] for info in found] == [2, 3, 3])
    browser.until(f"/topics/topic?name={topic}", lambda page: page.count("not preferred") == 2)
    preview = change(cluster, browser, "/reassignments/elect", by_command=by_command, topic=topic)
    assert f"{topic}-0 leader 1 leader 2 {topic}-1 leader 2 leader 3" in preview
    until(admin, topic, lambda found: [info.leader for info in found] == [2, 3, 3])


def test_a_replica_that_is_behind_leads_if_an_operator_says_so(
    cluster: LocalCluster, browser: HttpBrowser, admin: Admin
) -> None:
    topic = new_topic(admin, [1, 2])
    cluster.kill(2)
    until(admin, topic, lambda found: found[0].isr == (1,))
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.send_and_wait(topic, b"only broker 1 has this")
    cluster.kill(1)
    try:
        cluster.restart(2)
        browser.until(f"/topics/topic?name={topic}", lambda page: "offline: no leader" in page)
        fields = {"topic": topic, "again": topic}
        preview = change(cluster, browser, "/reassignments/unclean", by_command=False, **fields)
        assert f"{topic}-0 no leader; in sync: 1; not active: 1 leader 2" in preview
        until(admin, topic, lambda found: found[0].leader == 2)
    finally:
        cluster.heal()
