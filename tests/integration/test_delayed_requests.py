"""Requests of a transaction that are held up on an old connection, while their client goes on over a new one, and then
arrive in a later transaction: they change nothing (KAFKA-17754). The client keeps its epoch, so that these requests are
such as the later transaction might have sent."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator

import pytest

from ottla.client.admin import Admin
from ottla.protocol.messages.transactions import AddPartitionsToTxnRequest, EndTxnRequest
from tests.integration.proxy import DelayingProxy, Fate
from tests.integration.transactional_clients import TransactionalClient, open_client

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

IMPATIENT, CUT_OFF = "impatient", "cut-off"
"""Why a client goes on over a new connection."""
CLIENTS = [
    ("confluent-kafka", IMPATIENT),
    ("confluent-kafka", CUT_OFF),
    ("aiokafka", CUT_OFF),
    ("kafka-python", CUT_OFF),
]
"""The others wait for longer than a test likes to."""


@pytest.fixture
def proxy(bootstrap: str) -> Iterator[DelayingProxy]:
    with DelayingProxy(bootstrap) as opened:
        yield opened


@pytest.fixture
def client(proxy: DelayingProxy, name: str) -> Iterator[TransactionalClient]:
    opened = open_client(name, proxy.bootstrap)
    yield opened
    opened.close()


def committed(client: TransactionalClient, topic: str) -> list[bytes]:
    """Values, in the order of partitions."""
    return [one.value for one in sorted(client.read(topic, committed=True))]


def ongoing(bootstrap: str) -> set[str]:
    """Transactional ids that have a transaction open."""

    async def ask() -> set[str]:
        async with Admin(bootstrap_servers=bootstrap.split(",")) as admin:
            return {one.transactional_id for one in await admin.list_transactions(states=["Ongoing"])}

    return asyncio.run(ask())


@pytest.mark.parametrize(("name", "reason"), CLIENTS)
@pytest.mark.parametrize("commits", [True, False])
def test_a_late_end_does_not_end_the_next_transaction(
    proxy: DelayingProxy, client: TransactionalClient, one_partition: str, *, commits: bool, reason: str
) -> None:
    """It commits, and the next one is aborted, or the other way round."""
    producer = client.producer(f"late-{uuid.uuid4().hex}")
    producer.begin()
    producer.send(one_partition, 0, b"first")
    producer.flush()
    held = proxy.hold(EndTxnRequest.api_key, resets=reason == CUT_OFF)
    producer.commit() if commits else producer.abort()
    producer.begin()
    producer.send(one_partition, 0, b"second")
    producer.flush()
    fate = held.release()
    assert committed(client, one_partition) == [b"first"] * commits, "the second is open"
    producer.abort() if commits else producer.commit()
    assert committed(client, one_partition) == [b"first" if commits else b"second"]
    assert fate is Fate.CLOSED


@pytest.mark.parametrize(("name", "reason"), CLIENTS)
def test_a_late_partition_opens_no_transaction(
    bootstrap: str, proxy: DelayingProxy, client: TransactionalClient, new_topic: str, reason: str
) -> None:
    transactional_id = f"late-{uuid.uuid4().hex}"
    producer = client.producer(transactional_id)
    held = proxy.hold(AddPartitionsToTxnRequest.api_key, resets=reason == CUT_OFF)
    producer.begin()
    producer.send(new_topic, 0, b"first")
    producer.commit()
    fate = held.release()
    assert transactional_id not in ongoing(bootstrap)
    producer.begin()
    producer.send(new_topic, 1, b"second")
    producer.commit()
    assert committed(client, new_topic) == [b"first", b"second"]
    assert fate is Fate.CLOSED
