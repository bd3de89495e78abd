"""The admin client's requests about mirrors, and its combination of many brokers' answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from ottla.client.admin import Admin, MirrorDescription
from ottla.client.failures import ConnectionLost, RequestTimedOut, VersionUnsupported
from ottla.protocol.cluster.mirror_table import FaultKind, MirrorFault, MirrorPhase, offsets_copy
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.mirror_records import MirrorOption, SourceEpoch
from ottla.protocol.messages.mirrors import (
    AlterMirrorRequest,
    CreateMirrorRequest,
    DescribedMirrorTopic,
    MirrorAction,
    SkippedTopic,
)
from tests.client.fake_mirrors import Described, Mirroring, described, partition

ACTIVE, PROMOTED = MirrorPhase.ACTIVE, MirrorPhase.PROMOTED


@asynccontextmanager
async def mirroring(
    brokers: int = 3, *, left_out: int = 0, **options: Any
) -> AsyncIterator[tuple[Mirroring, Admin]]:
    """Run a mirroring cluster without its last `left_out` APIs, and an admin client."""
    cluster = Mirroring()
    del cluster.served[len(cluster.served) - left_out :]
    await cluster.start(brokers)
    try:
        async with Admin(bootstrap_servers=cluster.bootstrap, **options) as admin:
            yield cluster, admin
    finally:
        await cluster.stop()


async def only(admin: Admin) -> MirrorDescription:
    (found,) = await admin.describe_mirrors(["m"])
    return found


# Creating


@pytest.mark.parametrize(
    ("start", "sent"),
    [
        ("earliest", -2),
        ("latest", -1),
        (1_700_000_000_000, 1_700_000_000_000),
        (datetime(2026, 1, 31, tzinfo=UTC), 1_769_817_600_000),
    ],
)
async def test_a_mirror_is_created_with_what_was_given(start: Any, sent: int) -> None:
    async with mirroring() as (cluster, admin):
        source_id = await admin.create_mirror(
            "m",
            source="there:9092",
            topics="o.*",
            groups="g",
            start=start,
            options={"security_protocol": "SSL", "ssl_check_hostname": "false"},
            validate_only=True,
        )
        assert source_id == "there"
        assert cluster.asked == [
            CreateMirrorRequest(
                name="m",
                bootstrap_servers="there:9092",
                topics="o.*",
                groups="g",
                start=sent,
                options=[
                    MirrorOption(name="security_protocol", value="SSL"),
                    MirrorOption(name="ssl_check_hostname", value="false"),
                ],
                validate_only=True,
            )
        ]


async def test_options_of_java_clients_become_ours() -> None:
    jaas = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="ann" password="p w";'
    async with mirroring() as (cluster, admin):
        await admin.create_mirror(
            "m",
            source="there:9092",
            topics=".*",
            options={
                "security.protocol": "sasl_ssl",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.jaas.config": jaas,
                "ssl.endpoint.identification.algorithm": "",
                "ssl_cafile": "/etc/ca.pem",
            },
        )
        (request,) = cluster.asked
        assert isinstance(request, CreateMirrorRequest)
        assert {option.name: option.value for option in request.options} == {
            "ssl_cafile": "/etc/ca.pem",
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_plain_username": "ann",
            "sasl_plain_password": "p w",
            "ssl_check_hostname": "false",
        }
        assert "p w" not in repr(request)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"start": "newest"}, "start is 'earliest', 'latest'"),
        ({"start": -2}, "not -2"),
        ({"options": {"bootstrap.servers": "b"}}, "'bootstrap.servers' is no option"),
        (
            {"options": {"sasl.password": "a", "sasl_plain_password": "b"}},
            "'sasl_plain_password' is given twice",
        ),
        ({"options": {"fetch.min.bytes": "1"}}, "'fetch.min.bytes' is no option of connections"),
        ({"options": {"sasl.mechanisn": "PLAIN"}}, "did you mean 'sasl.mechanism'"),
        (
            {"options": {"sasl.mechanism": "PLAIN", "sasl_mechanism": "PLAIN"}},
            "'sasl_mechanism' is given twice",
        ),
    ],
)
async def test_what_is_wrong_is_told_before_anything_is_sent(changes: dict[str, Any], said: str) -> None:
    async with mirroring() as (cluster, admin):
        with pytest.raises(ValueError, match=said):
            await admin.create_mirror("m", **{"source": "there:9092", "topics": ".*", **changes})
        assert not cluster.asked


async def test_what_the_cluster_refuses_is_told_and_what_may_pass_is_tried_again() -> None:
    async with mirroring() as (cluster, admin):
        cluster.refusals = [ErrorCode.DUPLICATE_RESOURCE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
        with pytest.raises(KafkaError, match="mirror 'm': for a reason") as raised:
            await admin.create_mirror("m", source="there:9092", topics=".*")
        assert raised.value.code is ErrorCode.DUPLICATE_RESOURCE
        assert len(cluster.asked) == 2


async def test_other_clusters_have_no_mirrors() -> None:
    async with mirroring(left_out=5) as (_, admin):
        with pytest.raises(VersionUnsupported):
            await admin.create_mirror("m", source="there:9092", topics=".*")
        with pytest.raises(VersionUnsupported):
            await admin.describe_mirrors()


async def test_options_of_librdkafka_become_ours() -> None:
    async with mirroring() as (cluster, admin):
        options = {"security.protocol": "ssl", "ssl.ca.location": "/etc/ca.pem", "sasl.password": "p w"}
        await admin.create_mirror("m", source="there:9092", topics=".*", options=options)
        (request,) = cluster.asked
        assert isinstance(request, CreateMirrorRequest)
        assert {option.name: option.value for option in request.options} == {
            "security_protocol": "SSL",
            "ssl_cafile": "/etc/ca.pem",
            "sasl_plain_password": "p w",
        }


# Describing


async def test_each_partition_is_told_of_by_the_broker_that_leads_it() -> None:
    def describe(broker: int) -> Described:
        partitions = [partition(index, index, log_end_offset=7, trouble="old news") for index in (0, 1, 2)]
        partitions[broker] = partition(
            broker,
            broker,
            is_told=True,
            log_end_offset=10 * broker,
            high_watermark=10 * broker,
            source_high_watermark=10 * broker + 5,
            lag_bytes=50,
            behind_ms=100 * broker,
            lineage=[SourceEpoch(epoch=4, start_offset=2)],
        )
        return [
            described(
                *partitions,
                source_cluster_id="there",
                bootstrap_servers="there:9092",
                topics_pattern="t",
                groups_pattern="g",
                start=-1,
                options=[MirrorOption(name="security_protocol", value="SSL")],
                trouble="no route" if broker == 2 else "",
                is_told=broker == 1,
                skipped=[SkippedTopic(name="x", reason=f"says {broker}")],
            )
        ]

    async with mirroring() as (cluster, admin):
        cluster.describe = describe
        found = await only(admin)
    assert (found.source_cluster_id, found.bootstrap_servers) == ("there", "there:9092")
    assert (found.topics_pattern, found.groups_pattern, found.start) == ("t", "g", -1)
    assert (found.phase, found.options) == (ACTIVE, {"security_protocol": "SSL"})
    assert found.skipped == {"x": "says 1"}
    assert (found.troubles, found.unanswered) == ({2: "no route"}, {})
    (topic,) = found.topics
    assert [copy.log_end_offset for copy in topic.partitions] == [0, 10, 20]
    assert [copy.trouble for copy in topic.partitions] == ["", "", ""]
    assert topic.partitions[1].lineage == ((4, 2),)
    assert (topic.lag, topic.lag_bytes, topic.behind_ms) == (15, 150, 200)
    assert (found.lag, found.lag_bytes) == (15, 150)


async def test_a_broker_that_does_not_answer_leaves_its_partitions_unknown() -> None:
    def describe(broker: int) -> Described:
        if broker == 1:
            return None
        partitions = [partition(index, index, is_told=index == broker) for index in (0, 1, 2)]
        partitions[broker].log_end_offset = partitions[broker].source_high_watermark = 5
        partitions[broker].behind_ms = partitions[broker].lag_bytes = 0
        return [described(*partitions)]

    async with mirroring() as (cluster, admin):
        cluster.describe = describe
        found = await only(admin)
    assert {broker: type(error) for broker, error in found.unanswered.items()} == {1: ConnectionLost}
    assert [copy.lag for copy in found.topics[0].partitions] == [0, None, 0]
    assert (found.topics[0].lag, found.topics[0].lag_bytes, found.topics[0].behind_ms) == (None, None, None)
    assert (found.lag, found.skipped) == (None, None)


async def test_if_no_broker_answers_that_is_told() -> None:
    async with mirroring() as (cluster, admin):
        cluster.describe = lambda broker: None
        with pytest.raises(ConnectionLost):
            await admin.describe_mirrors()


async def test_mirrors_are_found_by_name_though_a_broker_has_not_heard_of_one() -> None:
    async with mirroring() as (cluster, admin):
        cluster.describe = lambda broker: [described(name=name) for name in ("west", "east")[: broker + 1]]
        assert [mirror.name for mirror in await admin.describe_mirrors()] == ["east", "west"]
        assert [mirror.name for mirror in await admin.describe_mirrors(["west", "west"])] == ["west"]
        assert await admin.describe_mirrors([]) == []
        with pytest.raises(KafkaError, match="no mirror 'wets'; did you mean 'west'") as raised:
            await admin.describe_mirrors(["wets"])
        assert raised.value.code is ErrorCode.RESOURCE_NOT_FOUND


async def test_a_fault_names_what_is_lost() -> None:
    fault = {"fault": 1, "fault_first": 3, "fault_end": 9, "fault_reason": "retention"}
    async with mirroring(1) as (cluster, admin):
        cluster.describe = lambda broker: [
            described(partition(0, 0), partition(1, 0, **fault), partition(2, -1, **{**fault, "fault": 99}))
        ]
        (topic,) = (await only(admin)).topics
    assert topic.faults == {
        1: MirrorFault(FaultKind.GAP, 3, 9, "retention"),
        2: MirrorFault(FaultKind.UNREADABLE, 3, 9, "retention"),
    }
    assert topic.partitions[2].leader is None


# Changing


async def test_each_change_is_one_request() -> None:
    async with mirroring() as (cluster, admin):
        await admin.pause_mirror("m")
        await admin.resume_mirror("m")
        await admin.resume_mirror("m", accept_gap=True)
        await admin.resume_mirror("m", accept_gap=True, topics=["t"])
        await admin.delete_mirror("m")
        assert cluster.actions() == [
            (MirrorAction.PAUSE, []),
            (MirrorAction.RESUME, []),
            (MirrorAction.ACCEPT_FAULTS, []),
            (MirrorAction.RESUME, []),
            (MirrorAction.ACCEPT_FAULTS, ["t"]),
            (MirrorAction.RESUME, []),
            (MirrorAction.DELETE, []),
        ]


async def test_a_mirror_is_limited_and_says_so() -> None:
    async with mirroring(1) as (cluster, admin):
        await admin.create_mirror("m", source="there:9092", topics="t", bandwidth=7_000)
        await admin.limit_mirror("m", 5_000)
        assert [getattr(request, "bandwidth", None) for request in cluster.asked] == [7_000, 5_000]
        assert cluster.actions() == [(MirrorAction.LIMIT, [])]
        cluster.describe = lambda broker: [described(bandwidth=5_000)]
        assert (await only(admin)).bandwidth == 5_000


async def test_a_source_is_reached_otherwise() -> None:
    async with mirroring() as (cluster, admin):
        await admin.reconnect_mirror("m", source="elsewhere:9092", options={"sasl.password": "p w"})
        await admin.reconnect_mirror("m")
        assert cluster.asked == [
            AlterMirrorRequest(
                name="m",
                action=MirrorAction.RECONNECT,
                bootstrap_servers="elsewhere:9092",
                options=[MirrorOption(name="sasl_plain_password", value="p w")],
            ),
            AlterMirrorRequest(name="m", action=MirrorAction.RECONNECT),
        ]


async def test_nothing_is_resumed_where_the_loss_could_not_be_accepted() -> None:
    async with mirroring() as (cluster, admin):
        cluster.refusals = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        with pytest.raises(KafkaError, match="for a reason"):
            await admin.resume_mirror("m", accept_gap=True, topics=["nosuch"])
        assert [action for action, _ in cluster.actions()] == [MirrorAction.ACCEPT_FAULTS]


async def test_what_a_promoted_mirror_has_lost_is_accepted_and_nothing_is_resumed() -> None:
    async with mirroring() as (cluster, admin):
        cluster.refusals = [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
        await admin.resume_mirror("m", accept_gap=True)
        assert [action for action, _ in cluster.actions()] == [
            MirrorAction.ACCEPT_FAULTS,
            MirrorAction.RESUME,
        ]
        cluster.refusals = [ErrorCode.INVALID_REQUEST]
        with pytest.raises(KafkaError, match="for a reason"):
            await admin.resume_mirror("m")


@pytest.mark.parametrize(
    ("options", "said"),
    [({"topics": ["t"]}, "resumed as a whole"), ({"accept_gap": True, "topics": []}, "topics is empty")],
)
async def test_no_loss_is_accepted_by_mistake(options: dict[str, Any], said: str) -> None:
    async with mirroring() as (cluster, admin):
        with pytest.raises(ValueError, match=said):
            await admin.resume_mirror("m", **options)
        assert not cluster.asked


class Promotion:
    """A promotion of two partitions; brokers learn of it one after another, and partition 1 has no leader at first."""

    def __init__(self, *, ends: bool) -> None:
        self.looks = 0
        self.ends = ends

    def describe(self, broker: int) -> Described:
        if broker == 0:
            self.looks += 1
        has_heard = self.looks > broker + 1
        leads = self.ends and self.looks > 3
        return [
            described(
                partition(0, 0, promoted_epoch=5 if has_heard else -1),
                partition(1, 1 if leads else -1),
                phase=PROMOTED if has_heard else ACTIVE,
            )
        ]


async def test_a_promotion_is_over_when_every_partition_has_a_leader_that_knows_of_it() -> None:
    async with mirroring(2) as (cluster, admin):
        promotion = Promotion(ends=True)
        cluster.describe = promotion.describe
        seen: list[MirrorDescription] = []
        found = await admin.promote_mirror("m", progress=seen.append)
        assert promotion.looks == len(seen) == 4
        assert found == seen[-1]
        assert (seen[0].phase, found.phase) == (ACTIVE, PROMOTED)
        assert cluster.actions() == [(MirrorAction.PROMOTE, [])]


async def test_a_promotion_tells_which_committed_offsets_nobody_has() -> None:
    copy = DescribedMirrorTopic(name=offsets_copy("m"), topic_id=b"c" * 16)
    copy.partitions = [partition(0, 0), partition(1, -1, fault=1, fault_first=0, fault_end=7)]
    async with mirroring(1, request_timeout_ms=300) as (cluster, admin):
        mirror = described(partition(0, 0), phase=PROMOTED, takes_offsets=True)
        mirror.topics.append(copy)
        cluster.describe = lambda broker: [mirror]
        with pytest.raises(
            RequestTimedOut, match=r"committed offsets in __mirrored_offsets\.m-1: .* accepted"
        ):
            await admin.promote_mirror("m", at_cut=True)


async def test_a_promotion_without_a_leader_ends_at_a_deadline() -> None:
    async with mirroring(2, request_timeout_ms=300) as (cluster, admin):
        cluster.describe = Promotion(ends=False).describe
        with pytest.raises(RequestTimedOut, match=r"'m' is promoted, but there is no leader yet .* for t-1$"):
            await admin.promote_mirror("m")


async def test_a_mirror_without_topics_is_promoted_when_brokers_say_so() -> None:
    async with mirroring(1) as (cluster, admin):
        cluster.describe = lambda broker: [described(phase=PROMOTED)]
        assert (await admin.promote_mirror("m")).topics == ()


async def test_a_mirror_that_is_deleted_during_its_promotion_is_told() -> None:
    async with mirroring(1) as (_, admin):
        with pytest.raises(KafkaError, match="'m' was deleted meanwhile"):
            await admin.promote_mirror("m")
