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
from ottla.client.admin import UserPassword
from ottla.client.failures import BackupRefused
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
        async with (
            Admin(**options) as keeper,
            await keeper.open_backup(tmp_path.as_uri(), topics="orders") as backup,
        ):
            with pytest.raises(BackupRefused, match="READ and DESCRIBE on the topic __consumer_offsets"):
                await backup.cut()
            await admin.create_acls(OTHER_RIGHTS)
            cut = await backup.cut()
        assert [topic.name for topic in cut.topics] == ["orders"]
        assert cut.left_out == ()
        await admin.delete_topics(["orders"])
        before = set(await admin.describe_acls())
        await admin.delete_acls([AclFilter(principal="User:keeper")])
        await admin.alter_quotas({"client-id": "reports"}, {"consumer_byte_rate": None})
        result = await admin.restore_backup(tmp_path.as_uri(), acls=True, quotas=True)
        assert [topic.name for topic in result.topics] == ["orders"]
        assert (result.acls, result.quotas) == (cut.acls, 1)
        assert set(await admin.describe_acls()) == before
        assert (
            {"client-id": "reports"},
            {"consumer_byte_rate": 1_000_000.0},
        ) in await admin.describe_quotas()
