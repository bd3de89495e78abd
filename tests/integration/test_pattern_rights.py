"""Two users subscribe to one pattern in one group (KIP-848).

Each is assigned only topics that it may describe, also after its coordinator has died, and loses a topic with the right
to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from ottla import Admin
from ottla.dataplane.cluster.internal_topics import OFFSETS_TOPIC
from ottla.protocol.cluster.acls import AclFilter, AclResourceType
from ottla.protocol.cluster.authorizer_settings import STANDARD_AUTHORIZER
from tests.cluster import RunningCluster, running_cluster, wait_for, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240), pytest.mark.xdist_group("pattern-rights")]

LOGIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
GROUP = "readers"
SETTLES_S = 60.0
SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
    "listener.name.plaintext.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "listener.name.plaintext.plain.sasl.jaas.config": f'{LOGIN_MODULE} required user_root="root-secret";',
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:root",
    "offsets.topic.num.partitions": "1",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
}
SHARED, ANNS, BOBS, NOBODYS = "p-shared", "p-ann", "p-bob", "p-nobody"
NOT_ALLOWED = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)


def options(cluster: RunningCluster, user: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": cluster.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN" if user == "root" else "SCRAM-SHA-256",
        "sasl.username": user,
        "sasl.password": f"{user}-secret",
        "log_level": 0,
    }


def may_read(user: str, kind: ResourceType, name: str) -> AclBinding:
    return AclBinding(
        kind,
        name,
        ResourcePatternType.LITERAL,
        f"User:{user}",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )


@contextmanager
def reader(cluster: RunningCluster, user: str) -> Iterator[Consumer]:
    member = Consumer(
        options(cluster, user)
        | {"group.id": GROUP, "group.protocol": "consumer", "enable.auto.commit": False}
    )
    member.subscribe(["^p-.*"])
    try:
        yield member
    finally:
        member.close()


class Readers:
    """The members of the group, whose assignments are checked all the time."""

    def __init__(self, ann: Consumer, bob: Consumer) -> None:
        self._members = {"ann": ann, "bob": bob}
        self.allowed = {"ann": {SHARED, ANNS}, "bob": {SHARED, BOBS}}

    def owned(self, user: str) -> set[tuple[str, int]]:
        return {(p.topic, p.partition) for p in self._members[user].assignment()}

    def settle(self, condition: Callable[[], bool], what: str) -> None:
        def polled() -> bool:
            for user, member in self._members.items():
                message = member.poll(0.05)
                assert message is None or message.error() is None or message.error().code() in NOT_ALLOWED
                found = {topic for topic, _ in self.owned(user)}
                assert found <= self.allowed[user], f"{user} is assigned {found}"
            return condition()

        wait_until(polled, what, SETTLES_S)

    def share(self) -> bool:
        """Return whether each has its own topic, and half of the shared one."""
        ann, bob = self.owned("ann"), self.owned("bob")
        own = {(ANNS, 0), (ANNS, 1)} <= ann and {(BOBS, 0), (BOBS, 1)} <= bob
        return own and len(ann) == len(bob) == 4 and not ann & bob


def prepare(cluster: RunningCluster) -> None:
    root = AdminClient(options(cluster, "root"))
    sizes = {SHARED: 4, ANNS: 2, BOBS: 2, NOBODYS: 2}
    for done in root.create_topics([NewTopic(name, count, 3) for name, count in sizes.items()]).values():
        done.result(30)
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    users = [UserScramCredentialUpsertion(user, info, f"{user}-secret".encode()) for user in ("ann", "bob")]
    for done in root.alter_user_scram_credentials(users).values():
        done.result(30)
    acls = [
        *(may_read(user, ResourceType.GROUP, GROUP) for user in ("ann", "bob")),
        *(may_read(user, ResourceType.TOPIC, SHARED) for user in ("ann", "bob")),
        may_read("ann", ResourceType.TOPIC, ANNS),
        may_read("bob", ResourceType.TOPIC, BOBS),
    ]
    for done in root.create_acls(acls).values():
        done.result(30)


async def with_admin(cluster: RunningCluster, act: Callable[[Admin], Awaitable[object]]) -> None:
    """Run `act` with a client that only uses running brokers."""
    awake = [broker.address for broker in cluster.brokers if broker.alive]
    async with Admin(bootstrap_servers=awake, **cluster.reached_by) as admin:
        await act(admin)


def test_two_users_of_one_pattern_are_assigned_what_they_may_describe(tmp_path: Path) -> None:
    with running_cluster(tmp_path, quorum=1, settings=SETTINGS) as cluster, ExitStack() as open_members:
        cluster.reached_by = {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": "root",
            "sasl_plain_password": "root-secret",
        }
        prepare(cluster)
        readers = Readers(*(open_members.enter_context(reader(cluster, user)) for user in ("ann", "bob")))
        readers.settle(readers.share, "two users share")

        before = readers.owned("ann"), readers.owned("bob")
        cluster.wait_until_in_sync(OFFSETS_TOPIC)
        coordinator = wait_for(lambda: cluster.leader(OFFSETS_TOPIC, 0), "a coordinator")
        cluster.broker(coordinator).kill9()
        wait_until(lambda: cluster.leader(OFFSETS_TOPIC, 0) not in (None, coordinator), "another coordinator")
        # The next change shows that the new coordinator has heard both of them.
        asyncio.run(with_admin(cluster, lambda admin: admin.create_partitions(SHARED, 6)))
        readers.settle(lambda: len(readers.owned("ann") | readers.owned("bob")) == 10, "two more partitions")
        assert before[0] <= readers.owned("ann")
        assert before[1] <= readers.owned("bob")

        lost = AclFilter(resource_type=AclResourceType.TOPIC, resource_name=SHARED, principal="User:ann")
        asyncio.run(with_admin(cluster, lambda admin: admin.delete_acls([lost])))
        everything = {(SHARED, n) for n in range(6)} | {(BOBS, 0), (BOBS, 1)}
        readers.settle(
            lambda: readers.owned("ann") == {(ANNS, 0), (ANNS, 1)} and readers.owned("bob") == everything,
            "one user has lost a topic",
        )
        readers.allowed["ann"] = {ANNS}
        readers.settle(lambda: True, "nobody has what is not allowed")
