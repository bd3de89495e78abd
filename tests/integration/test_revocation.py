"""Users are deleted, and passwords and rights revoked, while their requests are in progress."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from ottla import ErrorCode, NewTopic, TopicPartition, sync
from ottla.client.admin.users import UserPassword
from ottla.protocol.cluster.acls import (
    Acl,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
)
from ottla.protocol.credentials.scram import SCRAM_SHA_256, ScramClient
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.groups import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from ottla.protocol.wire.schema import Message
from ottla.testing import LocalCluster
from tests.cluster import wait_until
from tests.raw_peer import Peer

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
ADMIN_PASSWORD = "the secret of admin"
PARKED_MS = 60_000
MECHANISM = SCRAM_SHA_256.name


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
        "listener.name.plaintext.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.plaintext.plain.sasl.jaas.config": f'{_MODULE} required user_admin="{ADMIN_PASSWORD}";',
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
        "delegation.token.secret.key": "b1946ac92492d2347c6235b4d2611184",
    }
    with LocalCluster(brokers=1, settings=settings) as cluster:
        yield cluster


def as_admin(cluster: LocalCluster) -> dict[str, Any]:
    return {
        "bootstrap_servers": cluster.bootstrap_servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "admin",
        "sasl_plain_password": ADMIN_PASSWORD,
    }


@pytest.fixture
def admin(cluster: LocalCluster) -> Iterator[sync.Admin]:
    with sync.Admin(**as_admin(cluster)) as admin:
        yield admin


class User:
    """A user of one test, with a topic and a group that it may read."""

    def __init__(self, cluster: LocalCluster, admin: sync.Admin) -> None:
        self.cluster, self.admin = cluster, admin
        self.name = self.topic = self.group = f"u-{uuid.uuid4().hex}"
        self.acls = [
            Acl(kind, self.name, PatternType.LITERAL, f"User:{self.name}", "*", AclOperation.READ, AclPermission.ALLOW)
            for kind in (AclResourceType.TOPIC, AclResourceType.GROUP)
        ]  # fmt: skip
        self.set_password("first")
        admin.create_topics([NewTopic(self.topic, 1)])
        admin.create_acls(self.acls)

    def set_password(self, password: str) -> None:
        self.admin.alter_scram_credentials([UserPassword(self.name, password, MECHANISM)])

    def options(self) -> dict[str, Any]:
        """Return options of a client that logs in as this user."""
        return as_admin(self.cluster) | {
            "sasl_mechanism": MECHANISM, "sasl_plain_username": self.name, "sasl_plain_password": "first",
        }  # fmt: skip

    def delete(self) -> None:
        self.admin.alter_scram_credentials(deletions=[(self.name, MECHANISM)])

    def peer(self) -> Peer:
        return Peer(int(self.cluster.bootstrap_servers.rpartition(":")[2]))

    def challenged(self, peer: Peer) -> tuple[ScramClient, bytes]:
        """Return a login with its proof, which is not sent yet."""
        assert peer.ask(SaslHandshakeRequest(mechanism=MECHANISM), 1).error_code == ErrorCode.NONE
        client = ScramClient(SCRAM_SHA_256, self.name, "first", "nonce")
        challenge = peer.ask(SaslAuthenticateRequest(auth_bytes=client.first()), 2)
        assert challenge.error_code == ErrorCode.NONE
        return client, client.final(bytes(challenge.auth_bytes))

    def logged_in(self) -> Peer:
        peer = self.peer()
        client, proof = self.challenged(peer)
        client.check(bytes(peer.ask(SaslAuthenticateRequest(auth_bytes=proof), 2).auth_bytes))
        return peer

    def park_a_fetch(self, peer: Peer) -> None:
        part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=100_000)
        fetch = FetchRequest(
            max_wait_ms=PARKED_MS, min_bytes=1, max_bytes=100_000, session_epoch=-1,
            topics=[FetchTopic(topic=self.topic, partitions=[part])],
        )  # fmt: skip
        self.park(peer, fetch, 12)

    def park(self, peer: Peer, request: Message, version: int) -> None:
        """Send a request that waits."""
        first = MetadataRequest(topics=[])
        peer.send_together((first, 12), (request, version))
        peer.receive(first, 12)

    def produce(self) -> None:
        with sync.Producer(**as_admin(self.cluster)) as producer:
            producer.send_and_wait(self.topic, b"secret", partition=0)


@pytest.fixture
def user(cluster: LocalCluster, admin: sync.Admin) -> User:
    return User(cluster, admin)


@pytest.mark.parametrize("change", ["deleted", "changed"])
def test_a_login_that_completes_after_the_password_is_gone_is_refused(user: User, change: str) -> None:
    with closing(user.peer()) as peer:
        _, proof = user.challenged(peer)
        user.delete() if change == "deleted" else user.set_password("second")
        assert peer.ask(SaslAuthenticateRequest(auth_bytes=proof), 2).error_code == 58
        with pytest.raises(ConnectionError):
            peer.ask(MetadataRequest(topics=[]), 12)


def test_so_is_one_that_renews_a_session(user: User) -> None:
    with closing(user.logged_in()) as peer:
        time.sleep(1.1)  # sooner no login may be renewed
        _, proof = user.challenged(peer)
        user.set_password("second")
        with pytest.raises((ConnectionError, AssertionError)):
            assert peer.ask(SaslAuthenticateRequest(auth_bytes=proof), 2).error_code == ErrorCode.NONE


def test_a_parked_fetch_of_a_deleted_user_gets_no_record(user: User) -> None:
    with closing(user.logged_in()) as peer:
        user.park_a_fetch(peer)
        began = time.monotonic()
        user.delete()
        with pytest.raises(ConnectionError):
            peer.receive(FetchRequest(), 12)
        assert time.monotonic() - began < 15, "not when the connection had been silent for 30 s"


def test_a_parked_join_of_a_deleted_user_is_not_told_the_group(user: User) -> None:
    """The first member waits for the second, which does not rejoin."""
    join = JoinGroupRequest(
        group_id=user.group, session_timeout_ms=60_000, rebalance_timeout_ms=60_000, protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"what i read")],
    )  # fmt: skip
    with closing(user.logged_in()) as first, closing(user.logged_in()) as second:
        find = FindCoordinatorRequest(key=user.group)
        wait_until(lambda: first.ask(find, 3).error_code == ErrorCode.NONE, "a coordinator")
        wait_until(lambda: first.ask(join, 3).error_code == ErrorCode.NONE, "a member")
        user.park(second, join, 3)
        began = time.monotonic()
        user.delete()
        with pytest.raises(ConnectionError):
            second.receive(join, 3)
        assert time.monotonic() - began < 15, "not when the connection had been silent for 30 s"


def test_a_parked_fetch_gets_no_record_once_its_right_is_taken_away(user: User) -> None:
    with closing(user.logged_in()) as peer:
        user.park_a_fetch(peer)
        user.admin.delete_acls([AclFilter(AclResourceType.TOPIC, user.name)])
        user.produce()
        response = peer.receive(FetchRequest(), 12)
        (part,) = response.responses[0].partitions
        assert part.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert not part.records


def test_a_parked_fetch_ends_with_the_time_of_its_session(user: User) -> None:
    """The client may log in again: its fetch is answered with the available records."""
    with sync.Admin(**user.options()) as own:
        token = own.create_delegation_token()
        with closing(user.peer()) as peer:
            assert peer.ask(SaslHandshakeRequest(mechanism=MECHANISM), 1).error_code == ErrorCode.NONE
            client = ScramClient(
                SCRAM_SHA_256, token.token_id, token.password, "nonce", {"tokenauth": "true"}
            )
            challenge = peer.ask(SaslAuthenticateRequest(auth_bytes=client.first()), 2)
            proof = client.final(bytes(challenge.auth_bytes))
            client.check(bytes(peer.ask(SaslAuthenticateRequest(auth_bytes=proof), 2).auth_bytes))
            user.park_a_fetch(peer)
            own.expire_delegation_token(token.hmac, 500)
            response = peer.receive(FetchRequest(), 12, PARKED_MS / 2000)
            assert not response.responses[0].partitions[0].records


def test_a_user_who_deletes_itself_is_answered(admin: sync.Admin, user: User) -> None:
    may_alter = Acl(
        AclResourceType.CLUSTER, "kafka-cluster", PatternType.LITERAL, f"User:{user.name}", "*",
        AclOperation.ALTER, AclPermission.ALLOW,
    )  # fmt: skip
    admin.create_acls([may_alter])
    with sync.Admin(**user.options()) as own:
        own.alter_scram_credentials(deletions=[(user.name, MECHANISM)])


def test_tokens_go_with_the_user_who_owns_them_or_has_asked_for_them(admin: sync.Admin, user: User) -> None:
    options = user.options()
    with sync.Admin(**options) as own:
        token = own.create_delegation_token()
    by_token = options | {
        "sasl_plain_username": token.token_id,
        "sasl_plain_password": token.password,
        "sasl_token_auth": True,
    }
    with sync.Consumer(**by_token) as consumer:
        consumer.assign([TopicPartition(user.topic, 0)])
        consumer.seek(TopicPartition(user.topic, 0), 0)
        user.produce()
        records: list[Any] = []
        wait_until(lambda: records.extend(consumer.getmany(timeout_ms=500).values()) or records, "a record")
        user.set_password("second")
        assert [known.token_id for known in admin.describe_delegation_tokens([f"User:{user.name}"])], (
            "it outlives that"
        )
        user.delete()
        assert admin.describe_delegation_tokens([f"User:{user.name}"]) == []
    with pytest.raises(Exception, match="credentials"), sync.Consumer(**by_token) as consumer:
        consumer.partitions_for_topic(user.topic)
