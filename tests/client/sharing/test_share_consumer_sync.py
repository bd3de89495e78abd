"""`ottla.sync.ShareConsumer` with a real cluster: threads work on tasks of one queue."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from ottla import Reject, RequestTimedOut
from ottla.client.admin import GROUP_RESOURCE
from ottla.sync import Admin, Producer, ShareConsumer, ShareTask
from ottla.testing import LocalCluster

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    settings = {
        "group.share.min.record.lock.duration.ms": "1000",
        "share.coordinator.state.topic.num.partitions": "3",
    }
    with LocalCluster(settings=settings) as running:
        yield running


@pytest.fixture
def topic(cluster: LocalCluster, request: pytest.FixtureRequest) -> str:
    """Return a new topic; the share group of the same name begins at its start."""
    name: str = request.node.name
    cluster.create_topic(name)
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.alter_configs(GROUP_RESOURCE, name, {"share.auto.offset.reset": "earliest"})
    return name


def fill(cluster: LocalCluster, topic: str, count: int) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number)


def queue_of(cluster: LocalCluster, topic: str) -> ShareConsumer:
    return ShareConsumer(topic, group_id=topic, bootstrap_servers=cluster.bootstrap_servers)


def test_threads_work_on_the_tasks_of_one_queue(cluster: LocalCluster, topic: str) -> None:
    fill(cluster, topic, 60)
    done: list[int] = []
    threads: set[int] = set()
    barrier = threading.Barrier(4, timeout=30)

    def work(task: ShareTask) -> None:
        if len(threads) < 4 and threading.get_ident() not in threads:
            threads.add(threading.get_ident())
            barrier.wait()
        with suppress(ZeroDivisionError), task:
            number = int(task.value)
            if number % 10 == 0:
                raise Reject("a ten")
            if task.delivery_count == 1 and number % 7 == 0:
                raise ZeroDivisionError
            done.append(number)
        if len(done) == 54:
            queue.stop()

    with queue_of(cluster, topic) as queue, ThreadPoolExecutor(4) as pool:
        for task in queue:
            pool.submit(work, task)
    assert sorted(done) == [number for number in range(60) if number % 10]
    with queue_of(cluster, topic) as queue, pytest.raises(RequestTimedOut):
        queue.getone(timeout_ms=1_000)


def test_acknowledgements_are_futures(cluster: LocalCluster, topic: str) -> None:
    fill(cluster, topic, 3)
    with queue_of(cluster, topic) as queue:
        tasks: list[ShareTask] = []
        while len(tasks) < 3:
            tasks += queue.getmany(timeout_ms=5_000)
        assert tasks[0].accept().result(30) is None
        assert tasks[1].renew().result(30) is None
        assert tasks[1].reject().result(30) is None
        assert tasks[2].release(delay=0.5).result(30) is None
        with pytest.raises(RuntimeError, match="acknowledged before"):
            tasks[2].accept()
        again = queue.getone(timeout_ms=30_000)
        assert (again.value, again.delivery_count, again.lost) == (tasks[2].value, 2, False)
        again.accept()
        queue.flush()
