"""Patterns of consumer groups match topics that their members may describe, while ACLs, coordinators and members
change.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ottla.dataplane.groups.consumer.group import ConsumerGroup
from ottla.dataplane.groups.consumer.member import HeartbeatReply, MemberHeartbeat, Partitions
from ottla.dataplane.groups.consumer.records import (
    StoredConsumerGroup,
    consumer_record,
    read_consumer_record,
)
from ottla.dataplane.groups.limits import ConsumerLimits
from ottla.dataplane.security.authorization.authorizer import Authorizer
from ottla.protocol.cluster.acls import Acl, AclOperation, AclPermission, AclResourceType, PatternType
from ottla.protocol.errors import ErrorCode, KafkaError
from tests.dataplane.groups.test_consumer_group import REBALANCE_MS, Topics, essence, new_group

ANN, BOB = "User:ann", "User:bob"
ANYWHERE = "*"


def may(
    principal: str,
    topic: str,
    operation: AclOperation = AclOperation.DESCRIBE,
    host: str = ANYWHERE,
    permission: AclPermission = AclPermission.ALLOW,
) -> Acl:
    return Acl(AclResourceType.TOPIC, topic, PatternType.LITERAL, principal, host, operation, permission)


def rights(*acls: Acl) -> Authorizer:
    authorizer = Authorizer()
    authorizer.change((each, True) for each in acls)
    return authorizer


@dataclass
class Client:
    """A member that follows the protocol, and gives up revoked partitions at once."""

    member_id: str
    principal: str
    host: str = "/127.0.0.1"
    regex: str = ".*"
    instance_id: str | None = None
    epoch: int = 0
    owned: Partitions = frozenset()

    def beat(self, group: ConsumerGroup) -> HeartbeatReply:
        joining = self.epoch == 0
        reply = group.heartbeat(
            MemberHeartbeat(
                self.member_id,
                self.epoch,
                self.instance_id,
                client_host=self.host,
                principal=self.principal,
                rebalance_timeout_ms=REBALANCE_MS if joining else -1,
                regex=self.regex if joining else None,
                owned=frozenset() if joining else self.owned,
            ),
            0,
        )
        self.epoch = reply.epoch
        if reply.assigned is not None:
            self.owned = reply.assigned
        return reply


def settle(group: ConsumerGroup, *clients: Client) -> None:
    for _ in range(6):
        for client in clients:
            client.beat(group)
    group.check()


def failed_over(group: ConsumerGroup, topics: Topics) -> ConsumerGroup:
    """Return the group as the next coordinator reads it."""
    group.note_all()
    stored = StoredConsumerGroup()
    for change in group.take_changes():
        key, value = consumer_record(group, change)
        version = int.from_bytes(key[:2], "big")
        if version > 2:  # without the tombstone of a classic group
            stored.replay(read_consumer_record(version, key, value, 0))
    restored = stored.restore("g", ConsumerLimits(), topics.catalog, dict, 0)
    assert essence(restored) == essence(group)
    return restored


def test_a_member_is_assigned_what_it_may_describe() -> None:
    topics = Topics(rights(may(ANN, "a"), may(ANN, "both"), may(BOB, "both")), a=2, both=4, secret=3)
    group = new_group(topics)
    ann, bob = Client("m1", ANN), Client("m2", BOB)
    assert ann.beat(group).assigned == topics.all_of("a", "both")
    settle(group, ann, bob)
    assert ann.owned | bob.owned == topics.all_of("a", "both")
    assert bob.owned < topics.all_of("both")
    assert not group.subscribes("secret")


def test_what_implies_the_right_to_describe_will_do_and_denials_count() -> None:
    denied = may(BOB, "a", permission=AclPermission.DENY)
    topics = Topics(rights(may(ANN, "a", AclOperation.READ), may(BOB, "a", AclOperation.READ), denied), a=2)
    group = new_group(topics)
    ann, bob = Client("m1", ANN), Client("m2", BOB)
    settle(group, ann, bob)
    assert (ann.owned, bob.owned) == (topics.all_of("a"), frozenset())


def test_rights_are_those_of_the_host() -> None:
    topics = Topics(rights(may(ANN, "a", host="127.0.0.1")), a=2)
    group = new_group(topics)
    here, there = Client("m1", ANN), Client("m2", ANN, "/127.0.0.2")
    settle(group, here, there)
    assert (here.owned, there.owned) == (topics.all_of("a"), frozenset())


def test_a_revoked_right_takes_the_topic_away_with_the_next_heartbeat() -> None:
    authorizer = rights(may(ANN, "a"), may(ANN, "b"), may(BOB, "a"), may(BOB, "b"))
    topics = Topics(authorizer, a=2, b=2)
    group = new_group(topics)
    ann, bob = Client("m1", ANN), Client("m2", BOB)
    settle(group, ann, bob)
    epoch = group.epoch
    authorizer.change([(may(ANN, "a"), False)])
    # The union of the members' topics is unchanged, but each member's own topics count.
    assert not ann.beat(group).assigned & topics.all_of("a")
    settle(group, ann, bob)
    assert (ann.owned & topics.all_of("a"), bob.owned & topics.all_of("a")) == (
        frozenset(),
        topics.all_of("a"),
    )
    assert group.epoch == epoch + 1


def test_a_new_right_gives_the_topic_its_share() -> None:
    authorizer = rights(may(ANN, "a"))
    topics = Topics(authorizer, a=4)
    group = new_group(topics)
    ann, bob = Client("m1", ANN), Client("m2", BOB)
    settle(group, ann, bob)
    authorizer.change([(may(BOB, "a"), True)])
    settle(group, ann, bob)
    assert len(ann.owned) == len(bob.owned) == 2


def test_a_new_topic_and_a_changed_acl_are_one_new_epoch_for_all() -> None:
    authorizer = rights(may(ANN, "a"), may(ANN, "b"))
    topics = Topics(authorizer, a=3)
    group = new_group(topics)
    members = [Client(f"m{n}", ANN) for n in range(3)]
    settle(group, *members)
    epoch = group.epoch
    topics.create("b", 3)
    settle(group, *members)
    assert group.epoch == epoch + 1
    assert all(len(member.owned) == 2 for member in members)
    authorizer.change([(may(BOB, "a"), True)])
    settle(group, *members)
    assert group.epoch == epoch + 1, "another user's ACL changes nothing"


def test_a_new_coordinator_knows_what_its_members_may_describe_before_they_speak() -> None:
    topics = Topics(rights(may(ANN, "a"), may(ANN, "both"), may(BOB, "both")), a=2, both=4, secret=3)
    group = new_group(topics)
    ann, bob = Client("m1", ANN), Client("m2", BOB)
    settle(group, ann, bob)
    held, epoch = (ann.owned, bob.owned), group.epoch
    group = failed_over(group, topics)
    assert ann.beat(group).assigned is None
    assert bob.beat(group).assigned is None
    assert ((ann.owned, bob.owned), group.epoch) == (held, epoch)
    group = failed_over(group, topics)
    newcomer = Client("m3", BOB)
    newcomer.beat(group)
    assert {topic for topic, _ in group.target["m1"]} <= {topics.image.topics[t].id for t in ("a", "both")}
    assert {topic for topic, _ in group.target["m2"]} <= {topics.image.topics["both"].id}


def test_a_right_revoked_while_there_was_no_coordinator_is_gone_with_the_next() -> None:
    authorizer = rights(may(ANN, "a"), may(BOB, "a"))
    topics = Topics(authorizer, a=4)
    group = new_group(topics)
    ann, bob = Client("m1", ANN), Client("m2", BOB)
    settle(group, ann, bob)
    authorizer.change([(may(BOB, "a"), False)])
    group = failed_over(group, topics)
    ann.beat(group)
    assert group.target["m2"] == frozenset()
    settle(group, ann, bob)
    assert (ann.owned, bob.owned) == (topics.all_of("a"), frozenset())


def test_a_member_of_an_older_release_keeps_what_it_has_until_it_speaks() -> None:
    topics = Topics(rights(may(ANN, "a")), a=4, secret=2)
    group = new_group(topics)
    ann, other = Client("m1", ANN), Client("m2", ANN)
    settle(group, ann, other)
    group.members["m2"].principal = ""
    group = failed_over(group, topics)
    ann.beat(group)
    Client("m3", ANN).beat(group)
    assert {topic for topic, _ in group.target["m2"]} == {topics.image.topics["a"].id}
    other.beat(group)
    assert group.members["m2"].principal == ANN


def test_whoever_takes_a_static_members_place_has_its_own_rights() -> None:
    topics = Topics(rights(may(ANN, "a"), may(ANN, "b"), may(BOB, "b")), a=2, b=2)
    group = new_group(topics)
    first = Client("m1", ANN, instance_id="i")
    settle(group, first)
    group.heartbeat(MemberHeartbeat("m1", -2, "i"), 0)
    second = Client("m2", BOB, instance_id="i")
    second.beat(group)
    settle(group, second)
    assert second.owned == topics.all_of("b")


def test_without_an_authorizer_a_pattern_matches_everything() -> None:
    topics = Topics(a=2, b=1)
    group = new_group(topics)
    ann = Client("m1", ANN)
    settle(group, ann)
    assert ann.owned == topics.all_of("a", "b")


class RightsHistory(RuleBasedStateMachine):
    """Members of two principals, and ACLs, topics and coordinators that come and go.

    No member ever learns of a topic that it may not describe, and at the end every topic that a member may describe is
    assigned.
    """

    @initialize()
    def start(self) -> None:
        self.authorizer = rights(may(ANN, "t0"), may(BOB, "t1"))
        self.topics = Topics(self.authorizer, t0=2, t1=3)
        self.group = new_group(self.topics)
        self.serial = itertools.count(1)
        self.clients = [self.fresh(ANN), self.fresh(BOB)]

    def fresh(self, principal: str) -> Client:
        return Client(f"m{next(self.serial)}", principal)

    def speak(self, client: Client) -> None:
        try:
            reply = client.beat(self.group)
        except KafkaError as error:
            if error.code is not ErrorCode.FENCED_MEMBER_EPOCH:
                raise
            client.epoch, client.owned = 0, frozenset()
            return
        names = {self.topics.catalog.names[topic_id] for topic_id, _ in reply.assigned or ()}
        seen = self.authorizer.describable(client.principal, "127.0.0.1", names)
        assert names == set(seen), f"{client.principal} is told of {names - set(seen)}"

    @rule(number=st.integers(0, 3))
    def heartbeat(self, number: int) -> None:
        self.speak(self.clients[number % len(self.clients)])

    @rule(principal=st.sampled_from([ANN, BOB]))
    def one_more(self, principal: str) -> None:
        if len(self.clients) < 4:
            self.clients.append(self.fresh(principal))

    @rule(
        principal=st.sampled_from([ANN, BOB]), topic=st.sampled_from(["t0", "t1", "t2"]), added=st.booleans()
    )
    def acl_changes(self, principal: str, topic: str, added: bool) -> None:
        self.authorizer.change([(may(principal, topic), added)])

    @rule()
    def topic_comes_or_goes(self) -> None:
        if "t2" in self.topics.image.topics:
            self.topics.delete("t2")
        else:
            self.topics.create("t2", 2)

    @rule()
    def coordinator_fails_over(self) -> None:
        if self.group.members:
            self.group = failed_over(self.group, self.topics)

    @rule()
    def everybody_settles(self) -> None:
        for _ in range(6):
            for client in self.clients:
                self.speak(client)
        owned = frozenset[tuple[bytes, int]]().union(*(client.owned for client in self.clients))
        described = {
            topic
            for client in self.clients
            for topic in self.authorizer.describable(
                client.principal, "127.0.0.1", list(self.topics.image.topics)
            )
        }
        assert owned == self.topics.all_of(*described)

    @invariant()
    def is_consistent(self) -> None:
        self.group.check()


TestRightsHistory = RightsHistory.TestCase
TestRightsHistory.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
