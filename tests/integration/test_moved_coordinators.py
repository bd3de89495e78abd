"""Stock consumers whose group has moved to another coordinator when they fetch their offsets."""

from __future__ import annotations

import time
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from ottla.protocol.messages.offsets import OffsetFetchRequest
from tests.integration import test_franz_go, test_node_clients
from tests.integration.conftest import create
from tests.integration.foreign_builds import needs_go, needs_node
from tests.integration.proxy import MisdirectingProxy
from tests.integration.stock_clients import NAMES, installed
from tests.integration.test_confluent_kafka import produce

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(500)]

DEADLINE_S = 30.0
COMMITTED = 5


@pytest.fixture
def topic(bootstrap: str, admin: AdminClient) -> str:
    """Return a topic of one partition, whose name is also that of a group with the offset `COMMITTED`."""
    name = create(admin, 1)
    produce(bootstrap, name, [b"%d" % number for number in range(2 * COMMITTED)])
    committer = Consumer({"bootstrap.servers": bootstrap, "group.id": name})
    committer.commit(offsets=[TopicPartition(name, 0, COMMITTED)], asynchronous=False)
    committer.close()
    return name


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_librdkafka_member_begins_where_its_group_was(
    bootstrap: str, topic: str, protocol: str, isolation: str
) -> None:
    """librdkafka takes only NOT_COORDINATOR as final, and would read nothing."""
    with MisdirectingProxy(bootstrap, OffsetFetchRequest.api_key, 2) as proxy:
        member = Consumer(
            {
                "bootstrap.servers": proxy.bootstrap,
                "group.id": topic,
                "group.protocol": protocol,
                "isolation.level": isolation,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        member.subscribe([topic])
        deadline = time.monotonic() + DEADLINE_S
        while (message := member.poll(0.2)) is None or message.error() is not None:
            assert time.monotonic() < deadline, "it reads nothing"
        assert (message.offset(), proxy.left) == (COMMITTED, 0)
        member.close()


@pytest.mark.parametrize("name", NAMES)
def test_a_stock_member_begins_where_its_group_was(
    bootstrap: str, topic: str, tmp_path: Path, name: str
) -> None:
    with (
        MisdirectingProxy(bootstrap, OffsetFetchRequest.api_key, 2) as proxy,
        installed(tmp_path)[name].consumer(proxy.bootstrap, topic, topic) as member,
    ):
        member.wait_until(lambda: len(member.read) >= COMMITTED, "it has read")
        assert [record.place.offset for record in member.read] == list(range(COMMITTED, 2 * COMMITTED))
        assert proxy.left == 0


@needs_go
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_franz_go_members_find_their_coordinator(bootstrap: str, admin: AdminClient, protocol: str) -> None:
    with MisdirectingProxy(bootstrap, OffsetFetchRequest.api_key, 2) as proxy:
        group = f"g-{uuid.uuid4().hex[:8]}"
        report = test_franz_go.run("group", proxy.bootstrap, create(admin, 4), group, protocol)
        assert (report["read"], report["repeated"], report["lag"], proxy.left) == (report["sent"], 0, 0, 0)


@needs_node
def test_kafkajs_members_find_their_coordinator(bootstrap: str, admin: AdminClient) -> None:
    with MisdirectingProxy(bootstrap, OffsetFetchRequest.api_key, 2) as proxy:
        report = test_node_clients.run("group", proxy.bootstrap, create(admin, 4))
        assert (report["sent"], report["read"], report["committed"], proxy.left) == (300, 300, 300, 0)
