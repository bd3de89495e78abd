"""Requests of clients that are hostile, or have no rights: they change nothing for others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from ottla.dataplane.security.authorization.access import Authorization
from ottla.dataplane.security.authorization.audit_log import AuditLog
from ottla.dataplane.security.authorization.authorizer import Authorizer
from ottla.dataplane.server.handler import HandlerTable
from ottla.dataplane.server.router import Router
from ottla.protocol.cluster.acls import (
    Acl,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
)
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.share_fetch import ShareAcknowledgeRequest

from .share_broker import (
    ACCEPT,
    GROUP,
    ID,
    RELEASE,
    TOPIC,
    Member,
    ShareBroker,
    acquired,
    outcome,
    row,
    until,
)

FAR = 2**63 - 1
Range = tuple[int, int, Sequence[int]]


@pytest.mark.parametrize(
    "ranges",
    [
        [(0, 0, [5])],
        [(0, 0, [-1])],
        [(0, 0, [])],
        [(1, 0, [ACCEPT])],
        [(-1, 0, [ACCEPT])],
        [(-(2**63), FAR, [ACCEPT])],
        [(0, FAR, [ACCEPT])],
        [(FAR, FAR, [ACCEPT])],
        [(0, 2, [ACCEPT, ACCEPT])],
        [(0, 1, [ACCEPT, ACCEPT, ACCEPT])],
        [(0, 1, [ACCEPT]), (1, 2, [ACCEPT])],
        [(1, 1, [ACCEPT]), (0, 0, [ACCEPT])],
        [(0, 3, [ACCEPT])],
        [(0, 0, [ACCEPT])] * 20_000,
    ],
    ids=lambda ranges: f"{len(ranges)} ranges: {ranges[0]}",
)
async def test_malformed_acknowledgements_change_nothing(broker: ShareBroker, ranges: list[Range]) -> None:
    broker.write(3)
    member = Member(broker)
    assert await member.take() == [(0, 2, 1)]
    writes = len(broker.persister.writes)
    refused = await member.acknowledge(*ranges)
    assert outcome(refused).error_code == ErrorCode.INVALID_REQUEST
    assert outcome(refused).error_message
    assert len(broker.persister.writes) == writes
    assert outcome(await member.acknowledge((0, 2, [ACCEPT]))).error_code == 0


async def test_a_request_has_a_largest_number_of_ranges(broker: ShareBroker) -> None:
    broker.write(1)
    member = Member(broker)
    await member.take()
    refused = await member.acknowledge(*[(number, number, [ACCEPT]) for number in range(30_000)])
    assert refused.error_code == ErrorCode.POLICY_VIOLATION
    member.epoch -= 1
    assert outcome(await member.acknowledge((0, 0, [ACCEPT]))).error_code == 0
    member.send([(number, number, [ACCEPT]) for number in range(100_000)])
    await until(lambda: member.wire.closed, "the end of the connection")


async def test_many_single_ranges_are_acknowledged_fast(broker: ShareBroker) -> None:
    broker.set(share__partition__max__record__locks=4000)
    broker.write(4000)
    member = Member(broker)
    assert await member.take(max_records=4000) == [(0, 3999, 1)]
    began_s = time.process_time()
    answer = await member.acknowledge(
        *[(offset, offset, [(ACCEPT, RELEASE)[offset % 2]]) for offset in range(4000)]
    )
    assert outcome(answer).error_code == 0
    assert time.process_time() - began_s < 2
    share = broker.led().share
    assert share is not None
    assert share.unfinished_count == 2000


async def test_a_request_that_names_a_partition_twice_counts_once(broker: ShareBroker) -> None:
    broker.write(2)
    member = Member(broker)
    response = await member.fetch(partitions=[0, 0, 0], max_wait_ms=20_000)
    assert [part.partition_index for topic in response.responses for part in topic.partitions] == [0]
    assert acquired(response) == [(0, 1, 1)]


async def test_partitions_that_do_not_exist_take_no_state(broker: ShareBroker) -> None:
    member = Member(broker)
    response = await member.fetch(partitions=[0, 7, -1])
    assert row(response, 7).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert row(response, -1).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    response = await Member(broker, "n").fetch(topic_id=b"?" * 16)
    assert row(response).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert len(broker.partitions) == 1


async def test_a_window_that_would_take_too_much_memory_grows_no_further(tmp_path: Path) -> None:
    broker = ShareBroker(tmp_path, bytes_max=40_000)
    broker.create(TOPIC, ID, 1)
    broker.write(1, batches=300)
    member = Member(broker)
    taken = 0
    while ranges := acquired(await member.fetch(max_wait_ms=50, max_records=20)):
        ((first, last, _),) = ranges
        taken += last + 1 - first
        # Every other record is released, so that the window has a range for each record.
        await member.acknowledge(*[(offset, offset, [ACCEPT]) for offset in range(first, last, 2)])
    assert taken < 150
    assert broker.partitions.budget.total <= 40_000
    await broker.close()


async def test_ten_thousand_sessions_are_too_many(broker: ShareBroker) -> None:
    members = [Member(broker, str(number)) for number in range(10_000)]
    for member in members:
        member.send()
    await until(lambda: len(broker.sessions) == 2_000, "2,000 sessions")
    refused = await members[-1].answered()
    assert refused.error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    for member in members:
        member.wire.close()
    assert len(broker.sessions) == 0
    await until(lambda: not broker.partitions.budget.total, "no memory")


async def test_a_client_beyond_its_quota_waits_after_its_records(broker: ShareBroker) -> None:
    broker.quotas.changed({(("client-id", "test"),): {"consumer_byte_rate": 100.0}})  # type: ignore[dict-item]
    broker.write(1, batches=2, value=b"x" * 20_000)
    member = Member(broker)
    response = await member.fetch(max_wait_ms=20_000)
    assert acquired(response) == [(0, 0, 1)]
    assert response.throttle_time_ms > 0
    assert len(bytes(row(response).records)) > 20_000


# ---------------------------------------------------------------- rights


def allow(kind: AclResourceType, name: str) -> tuple[Acl, bool]:
    rule = (PatternType.LITERAL, "User:ANONYMOUS", "*", AclOperation.READ, AclPermission.ALLOW)
    return Acl(kind, name, *rule), True


class Guarded:
    """A broker with an authorizer."""

    def __init__(self, broker: ShareBroker) -> None:
        self.broker, self.authorizer = broker, Authorizer()
        table = HandlerTable(*broker.apis)
        audit = AuditLog(self.authorizer.decide, table.name, time.monotonic)
        broker.router = Router(
            table, asyncio.get_running_loop(), broker.quotas, Authorization(self.authorizer, audit)
        )


async def test_a_member_may_read_the_group_and_the_topic(broker: ShareBroker) -> None:
    guarded = Guarded(broker)
    broker.write(2)
    member = Member(broker)
    for _ in range(2):
        member.epoch = 0
        assert (await member.fetch()).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert (await member.acknowledge()).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        guarded.authorizer.change([allow(AclResourceType.TOPIC, TOPIC)])
    guarded.authorizer.change(
        [allow(AclResourceType.GROUP, GROUP), (allow(AclResourceType.TOPIC, TOPIC)[0], False)]
    )
    member.epoch = 0
    assert row(await member.fetch()).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert len(broker.partitions) == 0
    refused = await member.acknowledge((0, 0, [ACCEPT]))
    assert outcome(refused).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    guarded.authorizer.change([allow(AclResourceType.TOPIC, TOPIC)])
    assert acquired(await member.fetch(max_wait_ms=20_000)) == [(0, 1, 1)]
    assert outcome(await member.acknowledge((0, 0, [ACCEPT]))).error_code == 0


async def test_a_waiting_fetch_loses_its_right(broker: ShareBroker) -> None:
    guarded = Guarded(broker)
    topic = allow(AclResourceType.TOPIC, TOPIC)
    guarded.authorizer.change([allow(AclResourceType.GROUP, GROUP), topic])
    member = Member(broker)
    member.send(max_wait_ms=20_000)
    await until(lambda: broker.partitions and broker.led().share is not None, "a loaded share partition")
    guarded.authorizer.change([(topic[0], False)])
    broker.write(1)
    assert row(await member.answered()).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    share = broker.led().share
    assert share is not None
    assert share.acquired_count == 0


async def test_an_unknown_member_of_a_request_is_answered_in_every_version(broker: ShareBroker) -> None:
    for version in (1, 2):
        member = Member(broker, version=version)
        assert (await member.acknowledge(share_session_epoch=3)).error_code == (
            ErrorCode.SHARE_SESSION_NOT_FOUND
        )
        member.send(share_session_epoch=3)
        assert (await member.answered()).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert ShareAcknowledgeRequest.schema.api_key == 79
