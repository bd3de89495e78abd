"""Secured clusters that tests start for themselves: every client gets in by the options that it is given."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient
from kafka import KafkaProducer

from ottla.client.admin import Admin, UserPassword
from ottla.client.consumer import Consumer as OwnConsumer
from ottla.client.failures import AuthorizationFailed
from ottla.testing import LocalCluster

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("test_secured_cluster")]


@pytest.fixture(scope="module", params=["sasl_ssl", "ssl", "sasl_plaintext"])
def cluster(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    with LocalCluster(security=request.param) as running:
        yield running


def test_each_client_gets_in_by_its_options(cluster: LocalCluster) -> None:
    cluster.create_topic("t")
    assert cluster.leader("t") == 1

    async def produce() -> None:
        async with AIOKafkaProducer(**cluster.aiokafka_options) as producer:
            await producer.send_and_wait("t", b"of aiokafka")

    asyncio.run(produce())
    producer = KafkaProducer(**cluster.client_options)
    producer.send("t", b"of kafka-python").get(30)
    producer.close()
    consumer = Consumer(cluster.confluent_options | {"group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    try:
        values = [record.value() for record in consumer.consume(2, 30)]
    finally:
        consumer.close()
    assert values == [b"of aiokafka", b"of kafka-python"]

    async def consume() -> bytes | None:
        options = cluster.client_options | {"auto_offset_reset": "earliest"}
        async with OwnConsumer("t", **options) as own:
            return (await own.getone()).value

    assert asyncio.run(consume()) == b"of aiokafka"
    cluster.delete_topics("t")


def test_a_node_that_was_killed_comes_back(cluster: LocalCluster) -> None:
    cluster.create_topic("kept")
    cluster.kill(1)
    cluster.heal()
    cluster.restart(1)
    assert "kept" in AdminClient(cluster.confluent_options).list_topics(timeout=30).topics


def test_others_may_do_what_acls_allow() -> None:
    with LocalCluster(security="sasl_ssl") as cluster:
        cluster.create_topic("orders")

        async def check() -> None:
            async with Admin(**cluster.client_options) as admin:
                await admin.alter_scram_credentials([UserPassword("ann", "secret")], [])
                ann = cluster.client_options | {"sasl_plain_username": "ann", "sasl_plain_password": "secret"}
                async with Admin(**ann) as hers:
                    assert await hers.list_topics() == []
                    with pytest.raises(AuthorizationFailed):
                        await hers.describe_scram_credentials()

        asyncio.run(check())
        assert cluster.security_folder is not None
        assert (cluster.security_folder / "admin.properties").exists()


def test_without_security_the_options_are_the_addresses() -> None:
    with LocalCluster() as cluster:
        assert cluster.client_options == {"bootstrap_servers": cluster.bootstrap_servers}
        assert cluster.aiokafka_options == cluster.client_options
        assert cluster.confluent_options == {"bootstrap.servers": cluster.bootstrap_servers}
        assert cluster.security_folder is None


def test_what_there_is_not() -> None:
    with pytest.raises(ValueError, match="security is sasl_ssl, ssl, sasl_plaintext or None, not 'tls'"):
        LocalCluster(security="tls")
