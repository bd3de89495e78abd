"""Every node is stopped by SIGTERM and restarted, one after the other, under load, without failures for clients."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from tests.cluster import running_cluster, wait_until
from tests.integration.history import (
    SMALL_CLUSTER,
    Load,
    Place,
    Read,
    make_topic,
    read_all,
    wait_identical_replicas,
)

pytestmark = pytest.mark.cluster

PER_SECOND = 200
"""Records per second; a low rate, since the load lasts as long as the restarts. A higher rate would slow a busy machine
further, which lets in still more records."""


class Follower:
    """A group member in a thread that reads along, and commits as it goes."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.read: list[Read] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reader")
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"follows-{topic}",
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 200,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        self._consumer.subscribe([topic])
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            for message in self._consumer.consume(2_000, 0.05):
                if message.error() is None:
                    place = Place(message.partition() or 0, message.offset() or 0)
                    self.read.append(Read(place, message.value() or b""))
        self._consumer.close()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


def test_brokers_and_quorum_nodes_restart_one_after_the_other(tmp_path: Path) -> None:
    with running_cluster(tmp_path, settings=SMALL_CLUSTER) as cluster:
        make_topic(cluster.bootstrap, "rolled", 6, min_insync_replicas=2)
        reader = Follower(cluster.bootstrap, "rolled")
        try:
            # Not one retry is allowed to run out, nor may any take long.
            settings = {"message.timeout.ms": 20_000}
            with Load(cluster.bootstrap, "rolled", PER_SECOND, settings=settings) as load:
                wait_until(lambda: len(reader.read) > 100, "a reader that reads")
                for node in (*cluster.brokers, *cluster.quorum):
                    load.wait_acknowledged(50)
                    node.terminate()
                    load.wait_acknowledged(50)
                    node.restart()
                    if node.role == "broker":
                        cluster.wait_until_in_sync("rolled")
                        cluster.wait_until_in_sync("__consumer_offsets")
                    else:
                        cluster.wait_until_quorum_agrees()
                load.wait_acknowledged(100)
            assert load.failed == []
            everything = read_all(cluster.bootstrap, "rolled")
            load.check(everything)
            wait_until(
                lambda: {record.place for record in reader.read} >= {record.place for record in everything},
                "a reader that reached the end",
            )
        finally:
            reader.stop()
        assert set(reader.read) == set(everything)
        wait_identical_replicas(cluster, "rolled", 6)
