"""Stock consumers whose group has moved to another coordinator when they ask for their offsets."""

from __future__ import annotations

import time
import uuid

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from ottla.protocol.messages.offsets import OffsetFetchRequest
from tests.integration.conftest import create
from tests.integration.proxy import MisdirectingProxy
from tests.integration.test_confluent_kafka import produce

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

DEADLINE_S = 30.0
COMMITTED = 5


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_librdkafka_member_begins_where_its_group_was(
    bootstrap: str, admin: AdminClient, protocol: str, isolation: str
) -> None:
    """It reads nothing at all if it takes the refusal for final."""
    topic, group = create(admin, 1), f"moved-{uuid.uuid4().hex[:10]}"
    produce(bootstrap, topic, [b"%d" % number for number in range(2 * COMMITTED)])
    committer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    committer.commit(offsets=[TopicPartition(topic, 0, COMMITTED)], asynchronous=False)
    committer.close()
    with MisdirectingProxy(bootstrap, OffsetFetchRequest.api_key, 2) as proxy:
        member = Consumer(
            {
                "bootstrap.servers": proxy.bootstrap,
                "group.id": group,
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
