"""A secured cluster is backed up by a user who has the documented rights alone, and gets its ACLs and quotas back."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla import (
    Acl,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    Admin,
    NewTopic,
    PatternType,
    Producer,
)
from ottla.cli.commands.cluster.restore_endpoint import endpoint_for
from ottla.client.admin import UserPassword
from ottla.client.backup.plans import restore_plan
from ottla.client.backup.reading import read_catalog, read_cut
from ottla.client.backup.restore import Restore, prepare
from ottla.client.backup.run import open_backup
from ottla.client.failures import BackupRefused
from ottla.client.objects.opening import open_store
from ottla.testing import LocalCluster

CLUSTER = "kafka-cluster"
OFFSETS = "__consumer_offsets"
READ, DESCRIBE, CONFIGS = AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS


def allowed(kind: AclResourceType, name: str, operation: AclOperation) -> Acl:
    return Acl(kind, name, PatternType.LITERAL, "User:keeper", "*", operation, AclPermission.ALLOW)


TOPIC_RIGHTS = [
    allowed(AclResourceType.TOPIC, "orders", operation) for operation in (READ, DESCRIBE, CONFIGS)
]
OTHER_RIGHTS = [
    *(allowed(AclResourceType.TOPIC, OFFSETS, operation) for operation in (READ, DESCRIBE)),
    *(allowed(AclResourceType.CLUSTER, CLUSTER, operation) for operation in (DESCRIBE, CONFIGS)),
]


async def test_the_documented_rights_suffice_and_acls_and_quotas_come_back(tmp_path: Path) -> None:
    store = open_store(tmp_path.as_uri(), 30)
    async with (
        LocalCluster(brokers=1, quorum_nodes=1, security="sasl_ssl") as cluster,
        Admin(**cluster.client_options) as admin,
    ):
        await admin.create_topics([NewTopic("orders", 2, 1), NewTopic("secret", 1, 1)])
        async with Producer(**cluster.client_options) as producer:
            await producer.send_and_wait("orders", b"record", partition=1)
        await admin.alter_offsets("billing", {})
        await admin.alter_scram_credentials([UserPassword("keeper", "a password of the keeper")])
        await admin.create_acls(TOPIC_RIGHTS)
        await admin.alter_quotas({"client-id": "reports"}, {"consumer_byte_rate": 1_000_000})
        options = cluster.client_options | {
            "sasl_plain_username": "keeper",
            "sasl_plain_password": "a password of the keeper",
        }
        async with Admin(**options) as keeper:
            backup = await open_backup(keeper, store, topics="orders")
            with pytest.raises(BackupRefused, match="READ and DESCRIBE on the topic __consumer_offsets"):
                await backup.cut()
            await admin.create_acls(OTHER_RIGHTS)
            cut = (await backup.cut()).cut
            await backup.close()
        assert [topic.name for topic in cut.user_topics] == ["orders"]
        assert cut.left_out == ()
        await admin.delete_topics(["orders"])
        before = set(await admin.describe_acls())
        await admin.delete_acls([AclFilter(principal="User:keeper")])
        await admin.alter_quotas({"client-id": "reports"}, {"consumer_byte_rate": None})
        catalog = await read_catalog(store)
        assert catalog.newest is not None
        plan = restore_plan(await read_cut(store, catalog.newest), None, None, [])
        restoring = Restore(admin, store, await prepare(store, catalog, plan), acls=True, quotas=True)
        with endpoint_for(None, "127.0.0.1") as endpoint:
            result = await restoring.run(endpoint)
        assert (result.topics, result.quotas) == (1, 1)
        assert set(await admin.describe_acls()) == before
        assert (
            {"client-id": "reports"},
            {"consumer_byte_rate": 1_000_000.0},
        ) in await admin.describe_quotas()
