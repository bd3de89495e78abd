"""The metrics of nodes, checked against the actions of clients."""

from __future__ import annotations

import http.client
import socket
import time
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.parser import text_string_to_metric_families

from tests.cluster import running_cluster, wait_until

Samples = dict[str, dict[tuple[str, ...], float]]


@pytest.fixture(scope="session")
def endpoints(description: dict[str, Any]) -> list[str]:
    """Return the metrics addresses of brokers, then of quorum nodes."""
    if "metrics" not in description["brokers"][0]:
        pytest.skip("this cluster has no such endpoints")
    return [node["metrics"] for role in ("brokers", "quorum") for node in description[role]]


def scrape(address: str) -> Samples:
    samples: Samples = defaultdict(dict)
    with urllib.request.urlopen(address, timeout=60) as answer:
        for family in text_string_to_metric_families(answer.read().decode()):
            for sample in family.samples:
                samples[sample.name][tuple(sample.labels.values())] = sample.value
    return samples


def total(endpoints: list[str], name: str, *labels: str) -> float:
    """Return a metric's sum over all nodes that export it."""
    return sum(
        value
        for address in endpoints
        for found, value in scrape(address).get(name, {}).items()
        if found[: len(labels)] == labels
    )


def status(address: str, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(address.replace("/metrics", path), timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_traffic_offsets_and_lag_are_what_clients_did(
    bootstrap: str, new_topic: str, endpoints: list[str]
) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for n in range(300):
        producer.produce(new_topic, b"x" * 100, partition=n % 3)
    producer.flush(60)
    group = f"g-{new_topic}"
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([new_topic])
    messages, deadline = [], time.monotonic() + 60
    while len(messages) < 300 and time.monotonic() < deadline:
        messages += consumer.consume(300 - len(messages), timeout=0.5)
    assert len(messages) == 300
    last = max((m for m in messages if m.partition() == 1), key=lambda m: m.offset() or 0)
    consumer.commit(message=last, asynchronous=False)

    assert total(endpoints, "kafka_topic_partition_current_offset", new_topic) == 300
    assert total(endpoints, "kafka_topic_partition_in_sync_replica", new_topic) == 9
    assert total(endpoints, "kafka_topic_partition_under_replicated_partition", new_topic) == 0
    assert total(endpoints, "kafka_server_brokertopicmetrics_messagesinpersec_total", new_topic) == 300
    bytes_in = total(endpoints, "kafka_server_brokertopicmetrics_bytesinpersec_total", new_topic)
    assert bytes_in > 300 * 100
    assert total(endpoints, "kafka_server_brokertopicmetrics_bytesoutpersec_total", new_topic) >= bytes_in
    assert total(endpoints, "kafka_log_log_size", new_topic) == 3 * bytes_in
    assert total(endpoints, "kafka_consumergroup_members", group) == 1
    assert total(endpoints, "kafka_consumergroup_current_offset", group, new_topic, "1") == 100
    wait_until(
        lambda: total(endpoints, "kafka_consumergroup_lag", group, new_topic, "1") == 0, "a lag of nothing"
    )
    consumer.close()


def test_the_quorum_tells_of_the_cluster_once(endpoints: list[str]) -> None:
    assert total(endpoints, "kafka_controller_kafkacontroller_activecontrollercount") == 1
    assert total(endpoints, "kafka_controller_kafkacontroller_activebrokercount") == 3
    assert total(endpoints, "kafka_controller_kafkacontroller_offlinepartitionscount") == 0
    assert len({value for e in endpoints[3:] for value in scrape(e)["ottla_quorum_leader"].values()}) == 1


def test_every_node_tells_of_its_process(endpoints: list[str]) -> None:
    for address in endpoints:
        samples = scrape(address)
        assert 20e6 < samples["process_resident_memory_bytes"][()] < 500e6
        assert samples["process_open_fds"][()] > 5
        assert abs(samples["process_start_time_seconds"][()] - time.time()) < 3600
        assert status(address, "/healthz") == (200, "ok\n")
        assert status(address, "/readyz") == (200, "ready\n")


def test_requests_that_are_none_are_refused_and_cost_nothing(endpoints: list[str]) -> None:
    place = urlsplit(endpoints[0])
    assert place.hostname
    assert place.port
    assert status(endpoints[0], "/elsewhere")[0] == 404
    posted = http.client.HTTPConnection(place.hostname, place.port, timeout=60)
    posted.request("POST", "/metrics", body="x")
    assert posted.getresponse().status == 405
    posted.close()
    for garbage in (b"\0" * 100 + b"\r\n\r\n", b"A" * 100_000):
        with socket.create_connection((place.hostname, place.port), timeout=60) as sock:
            sock.sendall(garbage)
            answer = _rest(sock)
            assert not answer or b" 400 " in answer
    silent = [socket.create_connection((place.hostname, place.port), timeout=60) for _ in range(40)]
    wait_until(lambda: _answers(endpoints[0]), "an answer while silent connections time out")
    for sock in silent:
        sock.close()


def _rest(sock: socket.socket) -> bytes:
    data = b""
    try:
        while piece := sock.recv(65536):
            data += piece
    except ConnectionResetError:
        pass
    return data


def _answers(address: str) -> bool:
    try:
        return status(address, "/healthz")[0] == 200
    except OSError:
        return False


def test_readiness_follows_the_node(tmp_path: Path) -> None:
    with running_cluster(tmp_path, quorum=3, brokers=1, settings={}) as cluster:
        broker = cluster.brokers[0].entry["metrics"]
        for node in cluster.quorum[:2]:
            node.kill9()
        survivor = cluster.quorum[2].entry["metrics"]
        wait_until(_says(survivor, 503, "hears of no leader"), "a quorum node that hears of no leader")
        assert status(survivor, "/healthz")[0] == 200
        assert status(broker, "/healthz")[0] == 200
        for node in cluster.quorum[:2]:
            node.restart()
        wait_until(_says(survivor, 200, "ready"), "a quorum that has a leader again")
        wait_until(_says(broker, 200, "ready"), "a broker that takes part")


def _says(address: str, code: int, words: str) -> Callable[[], bool]:
    def says() -> bool:
        try:
            found, text = status(address, "/readyz")
        except OSError:  # it has not begun to listen
            return False
        return found == code and words in text

    return says


def test_a_restarted_broker_is_ready_once_its_replicas_are_in_sync(tmp_path: Path) -> None:
    with running_cluster(tmp_path, quorum=1, brokers=2, settings={}) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic("orders", 4, 2)])["orders"].result(60)
        cluster.wait_until_in_sync("orders")
        victim = cluster.brokers[1]
        victim.kill9()
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 5})
        for n in range(20_000):
            producer.produce("orders", b"x" * 1000, partition=n % 4)
            producer.poll(0)
        assert producer.flush(30) == 0
        victim.restart()
        wait_until(_says(victim.entry["metrics"], 200, "ready"), "a broker that has caught up")
        lacking = "kafka_server_replicamanager_underreplicatedpartitions"
        assert total([node.entry["metrics"] for node in cluster.brokers], lacking) == 0
