"""The admin client: every call that Kafka answers, with the same outcome from both."""

from __future__ import annotations

import uuid

import pytest

from ottla import (
    BROKER_RESOURCE,
    EARLIEST,
    GROUP_RESOURCE,
    LATEST,
    TO_THE_END,
    TOPIC_RESOURCE,
    Admin,
    Consumer,
    ErrorCode,
    KafkaError,
    NewTopic,
    Producer,
    TopicPartition,
)
from tests.compat.conftest import Topics
from tests.compat.reading import becomes, eventually, read


async def code_of(call: object) -> ErrorCode:
    """Return the error code with which a call fails."""
    with pytest.raises(KafkaError) as failed:
        await call  # type: ignore[misc]
    return failed.value.code


async def test_topics_come_and_go(admin: Admin) -> None:
    name = f"t-{uuid.uuid4().hex}"

    async def there() -> bool:
        return name in await admin.list_topics()

    async def size() -> int:
        return len((await admin.describe_topics([name]))[0].partitions)

    wanted = NewTopic(name, 3, 1, configs={"retention.ms": "3600000"})
    await admin.create_topics([wanted], validate_only=True)
    assert not await there()
    await admin.create_topics([wanted])
    assert await code_of(admin.create_topics([wanted])) is ErrorCode.TOPIC_ALREADY_EXISTS
    assert await code_of(admin.create_topics([NewTopic("in valid", 1)])) is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert await code_of(admin.create_topics([NewTopic(f"{name}-3", 1, 3)])) is (
        ErrorCode.INVALID_REPLICATION_FACTOR
    )
    assert (
        await code_of(admin.create_topics([NewTopic(f"{name}-c", 1, configs={"no.such": "1"})]))
        is ErrorCode.INVALID_CONFIG
    )
    (topic,) = await admin.describe_topics([name])
    assert {
        index: (partition.leader, list(partition.isr)) for index, partition in topic.partitions.items()
    } == {index: (1, [1]) for index in range(3)}
    await admin.create_partitions(name, 5, validate_only=True)
    await admin.create_partitions(name, 5)
    assert await code_of(admin.create_partitions(name, 4)) is ErrorCode.INVALID_PARTITIONS
    await becomes(size, 5)
    await admin.delete_topics([name])
    await becomes(there, False)
    assert await code_of(admin.describe_topics([name])) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await code_of(admin.delete_topics([name])) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_configs_are_set_and_taken_back(admin: Admin, topics: Topics) -> None:
    topic = await topics(retention_ms="1000000")

    async def retention() -> tuple[str | None, str, bool]:
        entries = {config.name: config for config in await admin.describe_configs(TOPIC_RESOURCE, topic)}
        entry = entries["retention.ms"]
        return entry.value, entry.source, entry.is_default

    assert await retention() == ("1000000", "topic", False)
    await admin.alter_configs(TOPIC_RESOURCE, topic, {"retention.ms": "5"}, validate_only=True)
    assert await retention() == ("1000000", "topic", False)
    await admin.alter_configs(TOPIC_RESOURCE, topic, {"retention.ms": "2000000"})
    await becomes(retention, ("2000000", "topic", False))
    await admin.alter_configs(TOPIC_RESOURCE, topic, {"retention.ms": None})
    await becomes(retention, ("604800000", "default", True))
    refused = admin.alter_configs(TOPIC_RESOURCE, topic, {"retention.ms": "soon"})
    assert await code_of(refused) is ErrorCode.INVALID_CONFIG
    assert (TOPIC_RESOURCE, topic) in await admin.list_config_resources([TOPIC_RESOURCE])


async def test_configs_of_brokers_and_groups(admin: Admin, group: str) -> None:
    async def value(kind: int, whose: str, name: str) -> str | None:
        return {config.name: config.value for config in await admin.describe_configs(kind, whose)}.get(name)

    await admin.alter_configs(BROKER_RESOURCE, "1", {"leader.replication.throttled.rate": "1000"})
    await becomes(lambda: value(BROKER_RESOURCE, "1", "leader.replication.throttled.rate"), "1000")
    await admin.alter_configs(BROKER_RESOURCE, "1", {"leader.replication.throttled.rate": None})
    await admin.alter_configs(BROKER_RESOURCE, "", {"log.retention.ms": "7000000"})
    await becomes(lambda: value(BROKER_RESOURCE, "", "log.retention.ms"), "7000000")
    await admin.alter_configs(BROKER_RESOURCE, "", {"log.retention.ms": None})
    await admin.alter_configs(GROUP_RESOURCE, group, {"consumer.session.timeout.ms": "46000"})
    await becomes(lambda: value(GROUP_RESOURCE, group, "consumer.session.timeout.ms"), "46000")
    assert (GROUP_RESOURCE, group) in await admin.list_config_resources()


async def test_offsets_and_the_deletion_of_records(bootstrap: str, admin: Admin, topics: Topics) -> None:
    topic = await topics(2)
    first, second, beyond = (TopicPartition(topic, index) for index in (0, 1, 2))
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(10):
            await producer.send(topic, b"%d" % number, partition=0)
    assert await admin.list_offsets({first: LATEST, second: LATEST}) == {first: 10, second: 0}
    assert await admin.delete_records({first: 4}) == {first: 4}
    assert await admin.list_offsets({first: EARLIEST}) == {first: 4}
    assert (await read(bootstrap, topic, 1))[0].value == b"4"
    too_far = (await admin.delete_records({first: 11}))[first]
    assert isinstance(too_far, KafkaError)
    assert too_far.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert await admin.delete_records({first: TO_THE_END}) == {first: 10}
    unknown = (await admin.list_offsets({beyond: LATEST}))[beyond]
    assert isinstance(unknown, KafkaError)
    assert unknown.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_groups_and_their_offsets(bootstrap: str, admin: Admin, topics: Topics, group: str) -> None:
    topic = await topics(2)
    here, there = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with Consumer(
        topic, bootstrap_servers=bootstrap, group_id=group, client_id="who", heartbeat_interval_ms=100
    ) as member:
        await eventually(lambda: len(member.assignment()) == 2, "a member with both partitions")
        (described,) = await admin.describe_groups([group])
        (only_member,) = described.members
        assert (described.state, described.type, described.assignor) == ("Stable", "classic", "range")
        assert (only_member.client_id, sorted(only_member.partitions), only_member.instance_id) == (
            "who",
            [here, there],
            None,
        )
        await member.commit({here: 5, there: 6})
        (listed,) = [known for known in await admin.list_groups() if known.group_id == group]
        assert (listed.state, listed.type, listed.protocol_type) == ("Stable", "classic", "consumer")
        refused = (await admin.alter_offsets(group, {here: 1}))[here]
        assert isinstance(refused, KafkaError)
        assert refused.code is ErrorCode.UNKNOWN_MEMBER_ID
        refused = (await admin.delete_offsets(group, [here]))[here]
        assert isinstance(refused, KafkaError)
        assert refused.code is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        kept = (await admin.delete_groups([group]))[group]
        assert isinstance(kept, KafkaError)
        assert kept.code is ErrorCode.NON_EMPTY_GROUP
    assert await admin.committed_offsets(group) == {here: 5, there: 6}
    assert await admin.alter_offsets(group, {here: 1}) == {here: None}
    assert await admin.delete_offsets(group, [there]) == {there: None}
    assert await admin.committed_offsets(group) == {here: 1}
    assert await admin.delete_groups([group]) == {group: None}
    assert await admin.committed_offsets(group) == {}
    gone = (await admin.delete_groups([group]))[group]
    assert isinstance(gone, KafkaError)
    assert gone.code is ErrorCode.GROUP_ID_NOT_FOUND
    assert await code_of(admin.describe_groups([group])) is ErrorCode.GROUP_ID_NOT_FOUND


async def test_the_cluster_its_quorum_and_its_folders(bootstrap: str, admin: Admin, topics: Topics) -> None:
    topic = await topics()
    cluster = await admin.describe_cluster()
    assert [(broker.id, f"{broker.host}:{broker.port}") for broker in cluster.brokers] == [(1, bootstrap)]
    assert (bool(cluster.cluster_id), cluster.fenced) == (True, ())
    quorum = await admin.describe_quorum()
    assert quorum.leader_id == 101
    assert list(quorum.voters) == [101]
    here = TopicPartition(topic, 0)
    async with Producer(bootstrap_servers=bootstrap) as producer:
        await producer.send_and_wait(topic, b"x" * 1_000)
    folders = (await admin.describe_log_dirs())[1]
    assert not isinstance(folders, KafkaError)
    assert [folder.replicas[here] for folder in folders if here in folder.replicas] == [
        (await admin.partition_sizes([here]))[here]
    ]
    assert (await admin.partition_sizes([here]))[here] > 1_000


async def test_elections_and_reassignments_of_one_broker(admin: Admin, topics: Topics) -> None:
    topic = await topics()
    here = TopicPartition(topic, 0)
    outcome = (await admin.elect_leaders([here]))[here]
    assert isinstance(outcome, KafkaError)
    assert outcome.code is ErrorCode.ELECTION_NOT_NEEDED
    assert await admin.elect_leaders() == {}
    assert await admin.alter_partition_reassignments({here: [1]}) == {here: None}
    assert await admin.list_partition_reassignments() == {}
    nobody = (await admin.alter_partition_reassignments({here: [9]}))[here]
    assert isinstance(nobody, KafkaError)
    assert nobody.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    none = (await admin.alter_partition_reassignments({here: None}))[here]
    assert isinstance(none, KafkaError)
    assert none.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert await code_of(admin.unregister_broker(77)) is ErrorCode.BROKER_ID_NOT_REGISTERED


async def test_quotas(admin: Admin) -> None:
    entity = {"client-id": f"c-{uuid.uuid4().hex}"}
    await admin.alter_quotas(entity, {"producer_byte_rate": 1e6}, validate_only=True)
    assert await admin.describe_quotas(entity) == []
    quotas = {"producer_byte_rate": 1e6, "request_percentage": 50}
    await admin.alter_quotas(entity, quotas)
    await becomes(lambda: admin.describe_quotas(entity), [(entity, quotas)])
    await admin.alter_quotas(entity, {"producer_byte_rate": None, "request_percentage": None})
    await becomes(lambda: admin.describe_quotas(entity), [])


async def test_moves_are_throttled_and_let_go(admin: Admin, topics: Topics) -> None:
    topic = await topics()

    async def throttles() -> tuple[str | None, str | None]:
        of_topic = {
            config.name: config.value for config in await admin.describe_configs(TOPIC_RESOURCE, topic)
        }
        of_broker = {
            config.name: config.value for config in await admin.describe_configs(BROKER_RESOURCE, "1")
        }
        return (
            of_topic["leader.replication.throttled.replicas"],
            of_broker.get("leader.replication.throttled.rate"),
        )

    before = await throttles()
    await admin.throttle_moves({TopicPartition(topic, 0): ([1], [1])}, [1], 1_000_000)
    await becomes(throttles, ("0:1", "1000000"))
    await admin.lift_throttles([topic], [1])
    await becomes(throttles, before)
