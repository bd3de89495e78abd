"""A worker in a cluster with an authorizer: the rights that docs/LAKE.md names suffice, and each is needed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla import (
    Acl,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    NewTopic,
    PatternType,
    TopicPartition,
    sync,
)
from ottla.client.admin import TOPIC_RESOURCE
from ottla.lake.iceberg.catalogs import LakePlace
from ottla.lake.worker import LakeOptions, LakeWorker
from ottla.testing import LocalCluster
from tests.lake.written_tables import values

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("lake"), pytest.mark.timeout(240)]
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
READ = (AclResourceType.TOPIC, "orders", PatternType.LITERAL, AclOperation.READ)
CONFIGS = (AclResourceType.TOPIC, "orders", PatternType.LITERAL, AclOperation.DESCRIBE_CONFIGS)
HOLD = (AclResourceType.GROUP, "ottla-lake-", PatternType.PREFIXED, AclOperation.READ)
WRITE = (AclResourceType.TRANSACTIONAL_ID, "lake-", PatternType.PREFIXED, AclOperation.WRITE)


@pytest.fixture(scope="module")
def secured() -> Iterator[LocalCluster]:
    """Run a cluster with the users admin, who may do everything, and lake."""
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
        "listener.name.plaintext.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": f'{MODULE} required user_admin="a" user_lake="l";',
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
    }
    with LocalCluster(brokers=1, settings=settings) as cluster:
        configs = {"ottla.lake.enable": "true"}
        with sync.Admin(**login(cluster, "admin", "a")) as admin:
            admin.create_topics(
                [NewTopic("orders", 1, configs=configs), NewTopic("secrets", 1, configs=configs)]
            )
        shop = sync.Producer(**login(cluster, "admin", "a"), transactional_id="shop")
        with shop as producer, producer.transaction():
            producer.send("orders", b"1")
            producer.send("secrets", b"2")
        yield cluster


def login(cluster: LocalCluster, user: str, password: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": cluster.bootstrap_servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": user,
        "sasl_plain_password": password,
    }


async def work(options: LakeOptions) -> bool:
    return await LakeWorker(options).run()


@pytest.mark.parametrize("lacking", [None, READ, CONFIGS, WRITE], ids=lambda right: right and right[3].name)
def test_a_worker_needs_these_rights_and_no_others(
    secured: LocalCluster, tmp_path: Path, lacking: tuple[Any, ...] | None
) -> None:
    acls = [
        Acl(*right[:3], "User:lake", "*", right[3], AclPermission.ALLOW)
        for right in (READ, CONFIGS, WRITE)
        if right is not lacking
    ]
    with sync.Admin(**login(secured, "admin", "a")) as admin:
        admin.create_acls(acls)
    try:
        place = LakePlace(folder=tmp_path)
        done = asyncio.run(work(LakeOptions(login(secured, "lake", "l"), place, once=True)))
    finally:
        with sync.Admin(**login(secured, "admin", "a")) as admin:
            admin.delete_acls([AclFilter(principal="User:lake")])
    if lacking is None:
        assert done
        assert values(tmp_path, "lake.orders") == {(0, 0): b"1"}
    else:
        assert not list(tmp_path.rglob("*.parquet"))


@pytest.mark.parametrize("may_hold", [True, False])
def test_a_held_topic_needs_read_on_the_group_and_its_table_goes_on_without(
    secured: LocalCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture, may_hold: bool
) -> None:
    with sync.Admin(**login(secured, "admin", "a")) as admin:
        rights = (READ, CONFIGS, WRITE, *([HOLD] if may_hold else ()))
        admin.create_acls(
            [Acl(*right[:3], "User:lake", "*", right[3], AclPermission.ALLOW) for right in rights]
        )
        admin.alter_configs(TOPIC_RESOURCE, "orders", {"ottla.lake.hold": "true"})
        try:
            place = LakePlace(folder=tmp_path)
            done = asyncio.run(work(LakeOptions(login(secured, "lake", "l"), place, once=True)))
            committed = admin.committed_offsets("ottla-lake-lake.orders")
        finally:
            admin.delete_acls([AclFilter(principal="User:lake")])
            admin.alter_configs(TOPIC_RESOURCE, "orders", {"ottla.lake.hold": "false"})
            admin.delete_groups(["ottla-lake-lake.orders"])
    assert done
    assert values(tmp_path, "lake.orders") == {(0, 0): b"1"}
    complaints = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    if may_hold:
        assert committed == {TopicPartition("orders", 0): 2}
        assert complaints == []
    else:
        assert committed == {}
        (complaint,) = complaints
        assert "table lake.orders: no offsets can be committed to group ottla-lake-lake.orders" in complaint
        assert "the worker's user needs Read on the group ottla-lake-lake.orders" in complaint
