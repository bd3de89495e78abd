"""ACLs of a source are copied to the cluster with the copies, and local ACLs stay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
)
from ottla.testing import LocalCluster
from tests.integration.mirroring import until

pytestmark = pytest.mark.xdist_group("failback")


def rule(kind: AclResourceType, name: str, principal: str = "User:ann") -> Acl:
    return Acl(kind, name, PatternType.LITERAL, principal, "*", AclOperation.READ, AclPermission.ALLOW)


def options_of(cluster: LocalCluster) -> tuple[str, dict[str, Any]]:
    options = {name: str(value) for name, value in cluster.client_options.items()}
    options["ssl_cadata"] = Path(options.pop("ssl_cafile")).read_text()
    return options.pop("bootstrap_servers"), options


async def test_acls_of_copied_topics_come_and_go_with_the_source() -> None:
    topic, group = rule(AclResourceType.TOPIC, "orders"), rule(AclResourceType.GROUP, "billing")
    other, own = rule(AclResourceType.TOPIC, "other"), rule(AclResourceType.TOPIC, "orders", "User:bob")
    async with (
        LocalCluster(brokers=1, quorum_nodes=1, security="sasl_ssl") as source,
        LocalCluster(brokers=1, quorum_nodes=1, security="sasl_ssl") as target,
        Admin(**source.client_options) as there,
        Admin(**target.client_options) as here,
    ):
        await there.create_topics([NewTopic("orders", 1, 1)])
        await there.create_acls([topic, group, other])
        await here.create_acls([own])
        before = set(await here.describe_acls())
        bootstrap, options = options_of(source)
        await here.create_mirror(
            "m", source=bootstrap, topics="orders", groups="bill.*", options=options, acls=True
        )

        async def has(*acls: Acl) -> bool:
            return set(await here.describe_acls()) - before == set(acls)

        await until(lambda: has(topic, group), "the ACLs of the source")
        await there.delete_acls([AclFilter(AclResourceType.GROUP)])
        await until(lambda: has(topic), "the removal of ACLs that the source has removed")
        await here.promote_mirror("m")
        await there.delete_acls([AclFilter(AclResourceType.TOPIC)])
        assert set(await here.describe_acls()) == before | {topic}
        (mirror,) = await here.describe_mirrors(["m"])
        assert mirror.acls
        assert not mirror.troubles
