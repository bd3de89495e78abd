"""Transaction requests that are delayed on an old connection, while their client goes on over a new one, change nothing
when they arrive in a later transaction (KAFKA-17754).

The client keeps its epoch, so the later transaction might have sent these requests.
"""

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
"""Reasons for which a client goes on over a new connection."""
CLIENTS = [
    ("confluent-kafka", IMPATIENT),
    ("confluent-kafka", CUT_OFF),
    ("aiokafka", CUT_OFF),
    ("kafka-python", CUT_OFF),
]
"""Clients for the tests; the others wait too long for a test."""


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
    """Return the committed values in the order of partitions."""
    return [record.value for record in sorted(client.read(topic, committed=True))]


def ongoing(bootstrap: str) -> set[str]:
    """Return the transactional ids with an open transaction."""

    async def ask() -> set[str]:
        async with Admin(bootstrap_servers=bootstrap.split(",")) as admin:
            return {
                transaction.transactional_id
                for transaction in await admin.list_transactions(states=["Ongoing"])
            }

    return asyncio.run(ask())


@pytest.mark.parametrize(("name", "reason"), CLIENTS)
@pytest.mark.parametrize("commits", [True, False])
def test_a_late_end_does_not_end_the_next_transaction(
    proxy: DelayingProxy, client: TransactionalClient, one_partition: str, *, commits: bool, reason: str
) -> None:
    """A delayed commit does not affect the next transaction, which is aborted, and vice versa."""
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
