"""Topic and configuration requests: refusals before the quorum is involved, and the commands sent to the quorum."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.dataplane.broker_settings import BrokerSettings
from ottla.dataplane.cluster.topic_creation import TopicDefaults
from ottla.dataplane.handlers import alter_configs
from ottla.dataplane.handlers.alter_configs import AlterConfigsHandlers
from ottla.dataplane.handlers.describe_configs import DescribeConfigsHandlers
from ottla.dataplane.handlers.settings.config_view import ConfigView
from ottla.dataplane.handlers.topics import TopicHandlers
from ottla.dataplane.patterns import compile_pattern
from ottla.dataplane.quotas import ClientQuotas
from ottla.dataplane.security.authorization.access import EVERYTHING
from ottla.dataplane.security.sealing import Sealer
from ottla.dataplane.security.setting_secrets import SettingSecrets
from ottla.dataplane.server import ClientRequest
from ottla.protocol.cluster.cluster_image import ClusterImage
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.command import Command
from ottla.protocol.messages.config_commands import AlterConfigs, AlterConfigsResult, AlteredConfig
from ottla.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    IncrementalAlterConfigsRequest,
    ReplaceConfigsResource,
    ReplacedConfig,
)
from ottla.protocol.messages.metadata_records import ConfigRecord, TopicRecord
from ottla.protocol.messages.topic_commands import (
    CreatedTopic,
    CreatePartitions,
    CreatePartitionsResult,
    CreateTopics,
    CreateTopicsResult,
    DeleteTopics,
    DeleteTopicsResult,
    TopicResult,
)
from ottla.protocol.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from ottla.protocol.settings.config_chain import ConfigSource
from ottla.protocol.wire.codec import encode
from ottla.protocol.wire.schema import Message

TOPIC_ID = b"0123456789abcdef"
SECRETS = SettingSecrets(Sealer([b"a cluster secret"]))


class RecordingQuorum:
    """A quorum that accepts and keeps every command."""

    def __init__(self) -> None:
        self.image = ClusterImage()
        self.image.apply(TopicRecord(topic_id=TOPIC_ID, name="orders"))
        self.commands: list[Command[Any]] = []

    async def submit(
        self, command: Command[Any], timeout_ms: int | None = None, *, author: object = None
    ) -> Message:
        self.commands.append(command)
        if isinstance(command, CreateTopics):
            created = [CreatedTopic(topic_id=TOPIC_ID, num_partitions=4) for _ in command.topics]
            return CreateTopicsResult(topics=created)
        if isinstance(command, CreatePartitions):
            return CreatePartitionsResult(topics=[TopicResult() for _ in command.topics])
        if isinstance(command, DeleteTopics):
            return DeleteTopicsResult(topics=[TopicResult() for _ in command.topic_ids])
        assert isinstance(command, AlterConfigs)
        return AlterConfigsResult(resources=[AlteredConfig() for _ in command.resources])


class AtVersion:
    def __init__(self, api_version: int) -> None:
        self.access = EVERYTHING
        self.api_version = api_version
        self.session: SimpleNamespace | None = None


def at_version(version: int) -> ClientRequest:
    return cast(ClientRequest, AtVersion(version))


def settings(quorum: RecordingQuorum) -> BrokerSettings:
    static = {"log.retention.hours": "10", "log.segment.bytes": "2097152"}
    return BrokerSettings(1, static, lambda: quorum.image)


def view(quorum: RecordingQuorum) -> ConfigView:
    return ConfigView(quorum, settings(quorum))


def topics(quorum: RecordingQuorum) -> TopicHandlers:
    return TopicHandlers(quorum, TopicDefaults(num_partitions=4), view(quorum), random.Random(1))


async def test_a_topic_that_is_asked_for_twice_is_refused_and_the_others_created() -> None:
    quorum = RecordingQuorum()
    wanted = [CreatableTopic(name=name, num_partitions=-1, replication_factor=2) for name in ("x", "y", "x")]
    response = await topics(quorum).create_topics(at_version(7), CreateTopicsRequest(topics=wanted))
    assert {(t.name, t.error_code) for t in response.topics} == {("x", ErrorCode.INVALID_REQUEST), ("y", 0)}
    (command,) = quorum.commands
    assert isinstance(command, CreateTopics)
    assert [(t.name, t.num_partitions, t.replication_factor) for t in command.topics] == [("y", 4, 2)]
    for version in range(2, 8):
        encode(response, version)


class Metered(AtVersion):
    """A request of a client with quotas."""

    def __init__(self, api_version: int) -> None:
        super().__init__(api_version)
        self.session = SimpleNamespace(user="ANONYMOUS", is_metered=True)
        self.client_id, self.received_at, self.throttled_ms = "c", 0.0, 0

    def throttle(self, for_ms: int) -> None:
        self.throttled_ms = max(self.throttled_ms, for_ms)


@pytest.mark.parametrize("version", [5, 7])
@pytest.mark.parametrize("partitions", [10_001, 2**31 - 1])
async def test_what_is_refused_or_there_already_is_not_charged(version: int, partitions: int) -> None:
    """A typo of two billion partitions would prevent its user from creating any for decades."""
    quorum, quotas = RecordingQuorum(), ClientQuotas()
    quotas.changed({(("user", "ANONYMOUS"),): {"controller_mutation_rate": 1.0}})
    handlers = TopicHandlers(
        quorum, TopicDefaults(num_partitions=4), view(quorum), random.Random(1), quotas=quotas
    )

    async def create(name: str, count: int) -> tuple[int, int]:
        request = Metered(version)
        wanted = CreatableTopic(name=name, num_partitions=count, replication_factor=1)
        message = CreateTopicsRequest(topics=[wanted])
        (created,) = (await handlers.create_topics(cast(ClientRequest, request), message)).topics
        return created.error_code, request.throttled_ms

    assert await create("huge", partitions) == (ErrorCode.POLICY_VIOLATION, 0)
    assert await create("orders", 10_000) == (ErrorCode.NONE, 0)  # the quorum would report that it exists
    growing = Metered(3)
    message = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="orders", count=partitions)])
    await handlers.create_partitions(cast(ClientRequest, growing), message)
    assert growing.throttled_ms == 0
    assert await create("first", 12) == (ErrorCode.NONE, 0 if version == 7 else 1_000)
    code = ErrorCode.THROTTLING_QUOTA_EXCEEDED if version == 7 else ErrorCode.NONE
    assert (await create("second", 1))[0] == code


async def test_topics_are_deleted_by_name_or_id_but_not_both() -> None:
    quorum = RecordingQuorum()
    wanted = [
        DeleteTopicState(name="orders"),
        DeleteTopicState(name="orders", topic_id=TOPIC_ID),
        DeleteTopicState(name=None, topic_id=TOPIC_ID),
        DeleteTopicState(name="missing"),
        DeleteTopicState(name=None, topic_id=b"x" * 16),
        DeleteTopicState(name=None),
    ]
    response = await topics(quorum).delete_topics(at_version(6), DeleteTopicsRequest(topics=wanted))
    assert [r.error_code for r in response.responses] == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
    ]
    assert quorum.commands == [DeleteTopics(topic_ids=[TOPIC_ID])]


async def test_names_are_deleted_below_version_6() -> None:
    quorum = RecordingQuorum()
    response = await topics(quorum).delete_topics(at_version(3), DeleteTopicsRequest(topic_names=["orders"]))
    assert [(r.name, r.error_code) for r in response.responses] == [("orders", 0)]
    encode(response, 3)


async def test_settings_tell_where_they_come_from() -> None:
    quorum = RecordingQuorum()
    handlers = DescribeConfigsHandlers(quorum, 1, view(quorum))
    image = quorum.image

    async def described(
        kind: int, name: str, key: str
    ) -> tuple[str | None, list[tuple[str, str | None, int]]]:
        resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=[key])
        request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
        response = await handlers.describe_configs(at_version(4), request)
        for version in range(1, 5):
            encode(response, version)
        (found,) = response.results[0].configs
        chain = [(link.name, link.value, link.source) for link in found.synonyms]
        assert found.config_source == (chain[0][2] if chain else ConfigSource.DEFAULT)
        return found.value, chain

    default = ("log.retention.hours", "168", ConfigSource.DEFAULT)
    in_file = ("log.retention.hours", "10", ConfigSource.STATIC_BROKER)
    assert await described(2, "orders", "retention.ms") == ("36000000", [in_file])
    image.apply(ConfigRecord(resource_type=4, resource_name="", config_name="log.retention.ms", value="9"))
    for_all = ("log.retention.ms", "9", ConfigSource.DYNAMIC_DEFAULT_BROKER)
    assert await described(2, "orders", "retention.ms") == ("9", [for_all, in_file])
    image.apply(ConfigRecord(resource_type=4, resource_name="1", config_name="log.retention.ms", value="8"))
    own = ("log.retention.ms", "8", ConfigSource.DYNAMIC_BROKER)
    assert await described(4, "1", "log.retention.ms") == ("8", [own, for_all, in_file])
    image.apply(ConfigRecord(resource_type=2, resource_name="orders", config_name="retention.ms", value="7"))
    topics_own = ("retention.ms", "7", ConfigSource.DYNAMIC_TOPIC)
    assert await described(2, "orders", "retention.ms") == ("7", [topics_own, own, for_all, in_file])
    assert await described(4, "1", "log.retention.hours") == ("10", [in_file, default])
    image.apply(ConfigRecord(resource_type=16, resource_name="m", config_name="metrics", value="a,b"))
    assert await described(16, "m", "metrics") == ("a,b", [("metrics", "a,b", ConfigSource.CLIENT_METRICS)])
    assert await described(16, "m", "interval.ms") == ("300000", [])
    image.apply(
        ConfigRecord(
            resource_type=32, resource_name="g", config_name="consumer.session.timeout.ms", value="50000"
        )
    )
    value, chain = await described(32, "g", "consumer.session.timeout.ms")
    assert (value, chain[0]) == ("50000", ("consumer.session.timeout.ms", "50000", ConfigSource.GROUP))


async def described(
    quorum: RecordingQuorum, kind: int, name: str, keys: list[str] | None
) -> dict[str, DescribeConfigsResourceResult]:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)
    response = await DescribeConfigsHandlers(quorum, 1, view(quorum)).describe_configs(at_version(4), request)
    return {config.name: config for config in response.results[0].configs}


def sources(found: DescribeConfigsResourceResult) -> list[tuple[str, int]]:
    return [(synonym.name, synonym.source) for synonym in found.synonyms]


async def test_no_keys_are_all_keys() -> None:
    quorum = RecordingQuorum()
    assert await described(quorum, 4, "1", []) == await described(quorum, 4, "1", None)


async def test_a_default_is_no_synonym_under_another_name() -> None:
    quorum = RecordingQuorum()
    found = await described(quorum, 2, "orders", None)
    assert found["segment.ms"].value == "604800000"
    for key in ("segment.ms", "segment.jitter.ms", "flush.ms"):
        assert sources(found[key]) == []
    assert sources(found["cleanup.policy"]) == [("log.cleanup.policy", ConfigSource.DEFAULT)]


async def test_the_least_isr_is_one_value_for_all_brokers() -> None:
    quorum = RecordingQuorum()
    shared = ("min.insync.replicas", ConfigSource.DYNAMIC_DEFAULT_BROKER)
    for kind, name in ((2, "orders"), (4, "1"), (4, "")):
        found = (await described(quorum, kind, name, None))["min.insync.replicas"]
        assert (found.value, sources(found)[0]) == ("1", shared)
    record = ConfigRecord(resource_type=4, resource_name="", config_name="min.insync.replicas", value="2")
    quorum.image.apply(record)
    assert (await described(quorum, 2, "orders", None))["min.insync.replicas"].value == "2"


async def test_of_a_setting_that_refers_to_a_value_elsewhere_the_reference_is_described() -> None:
    """This applies to the broker's own settings. A topic's settings are values, with which clients calculate."""
    quorum = RecordingQuorum()
    references = {"log.segment.bytes": "${env:BYTES}"}
    handlers = DescribeConfigsHandlers(quorum, 1, ConfigView(quorum, settings(quorum), references))
    message = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=4, resource_name="1"),
            DescribeConfigsResource(resource_type=2, resource_name="orders"),
        ],
        include_synonyms=True,
    )
    broker, topic = (await handlers.describe_configs(at_version(4), message)).results
    (own,) = [config for config in broker.configs if config.name == "log.segment.bytes"]
    assert own.value == "${env:BYTES}"
    assert [synonym.value for synonym in own.synonyms] == ["${env:BYTES}", "1073741824"]
    assert [config.value for config in topic.configs if config.name == "segment.bytes"] == ["2097152"]


async def test_settings_of_brokers_that_nothing_knows_are_described_as_without_effect() -> None:
    quorum = RecordingQuorum()
    for name, key, value in (("1", "my.plugin", "x"), ("", "sasl.kerberos.min.time.before.relogin", "70000")):
        quorum.image.apply(ConfigRecord(resource_type=4, resource_name=name, config_name=key, value=value))
    found = await described(quorum, 4, "1", None)
    mine, sasl = found["my.plugin"], found["sasl.kerberos.min.time.before.relogin"]
    assert (mine.value, mine.is_sensitive, mine.read_only) == (None, True, True)
    assert mine.config_source == ConfigSource.DYNAMIC_BROKER
    assert (sasl.value, sasl.is_sensitive) == ("70000", False)
    for setting in (mine, sasl):
        assert (setting.documentation or "").startswith("Without effect")
    assert "my.plugin" not in await described(quorum, 4, "", None)
    assert "sasl.kerberos.min.time.before.relogin" in await described(quorum, 4, "", None)


async def test_unknown_resources_have_errors_of_their_own() -> None:
    quorum = RecordingQuorum()
    resources = [
        DescribeConfigsResource(resource_type=kind, resource_name=name)
        for kind, name in (
            (2, "missing"),
            (4, "9"),
            (4, "x"),
            (8, ""),
            (8, "9"),
            (16, ""),
            (32, ""),
            (99, "x"),
        )
    ]
    response = await DescribeConfigsHandlers(quorum, 1, view(quorum)).describe_configs(
        at_version(1), DescribeConfigsRequest(resources=resources)
    )
    refused = [ErrorCode.INVALID_REQUEST] * 7
    assert [r.error_code for r in response.results] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, *refused]


async def test_changes_that_are_wrong_in_themselves_do_not_reach_the_quorum() -> None:
    quorum = RecordingQuorum()

    def resource(name: str, *configs: tuple[str, int, str | None]) -> AlterConfigsResource:
        changes = [AlterableConfig(name=n, config_operation=o, value=v) for n, o, v in configs]
        return AlterConfigsResource(resource_type=2, resource_name=name, configs=changes)

    resources = [
        resource("good", ("a", 0, "5"), ("b", 1, None)),
        resource("twice", ("a", 0, "5")),
        resource("twice", ("b", 0, "5")),
        resource("null", ("a", 0, None)),
        resource("repeated", ("a", 0, "1"), ("a", 0, "2")),
        resource("operation", ("a", 9, "1")),
    ]
    response = await AlterConfigsHandlers(quorum, settings(quorum), SECRETS).incremental_alter_configs(
        at_version(1), IncrementalAlterConfigsRequest(resources=resources)
    )
    assert [r.error_code for r in response.responses] == [0] + [ErrorCode.INVALID_REQUEST] * 5
    (command,) = quorum.commands
    assert isinstance(command, AlterConfigs)
    assert [r.resource_name for r in command.resources] == ["good"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("45000", ErrorCode.NONE),
        (" 45000 ", ErrorCode.NONE),
        ("1", ErrorCode.INVALID_CONFIG),
        (" 1 ", ErrorCode.INVALID_CONFIG),
        ("+1", ErrorCode.INVALID_CONFIG),
        ("x", ErrorCode.INVALID_CONFIG),
        ("9" * 5_000, ErrorCode.INVALID_CONFIG),
    ],
)
async def test_settings_of_groups_are_within_bounds_however_they_are_written(
    text: str, code: ErrorCode
) -> None:
    quorum = RecordingQuorum()
    change = AlterableConfig(name="consumer.session.timeout.ms", config_operation=0, value=text)
    resource = AlterConfigsResource(resource_type=32, resource_name="g", configs=[change])
    response = await AlterConfigsHandlers(quorum, settings(quorum), SECRETS).incremental_alter_configs(
        at_version(1), IncrementalAlterConfigsRequest(resources=[resource])
    )
    assert [result.error_code for result in response.responses] == [code]
    assert len(quorum.commands) == (code is ErrorCode.NONE)


async def test_patterns_of_clients_are_compiled_one_in_each_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """One value may hold thousands of patterns, and Python may take ten seconds for one pattern."""
    turns, compiled_in = [0], []

    def compiled(regex: str, what: str) -> object:
        compiled_in.append(turns[0])
        return compile_pattern(regex, what)

    def next_turn() -> None:
        turns[0] += 1
        asyncio.get_running_loop().call_soon(next_turn)

    next_turn()
    monkeypatch.setattr(alter_configs, "compile_pattern", compiled)
    quorum = RecordingQuorum()
    resources = [
        AlterConfigsResource(
            resource_type=16,
            resource_name=text,
            configs=[AlterableConfig(name="match", config_operation=0, value=text)],
        )
        for text in ("client_id=a.*,client_id=b,client_id=c", "client_id=(", "client_id=(.?){1000}")
    ]
    response = await AlterConfigsHandlers(quorum, settings(quorum), SECRETS).incremental_alter_configs(
        at_version(1), IncrementalAlterConfigsRequest(resources=resources)
    )
    refused = [0, ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_CONFIG]
    assert [result.error_code for result in response.responses] == refused
    assert len(compiled_in) == 5
    assert len(set(compiled_in[:3])) == 3


@pytest.mark.parametrize("replaces", [False, True])
async def test_secrets_travel_to_the_quorum_encrypted_and_those_that_it_refuses_not_at_all(
    replaces: bool,
) -> None:
    quorum = RecordingQuorum()
    handlers = AlterConfigsHandlers(quorum, settings(quorum), SECRETS)
    sealed, refused = "listener.name.clients.ssl.key.password", "my.plugin.password"
    given = {sealed: "hunter2", refused: "hunter2", "log.segment.bytes": "2097152"}
    if replaces:
        configs = [ReplacedConfig(name=name, value=value) for name, value in given.items()]
        resource = ReplaceConfigsResource(resource_type=4, resource_name="1", configs=configs)
        await handlers.alter_configs(at_version(2), AlterConfigsRequest(resources=[resource]))
    else:
        changes = [AlterableConfig(name=name, value=value) for name, value in given.items()]
        changed = AlterConfigsResource(resource_type=4, resource_name="1", configs=changes)
        request = IncrementalAlterConfigsRequest(resources=[changed])
        assert "hunter2" not in repr(request)
        await handlers.incremental_alter_configs(at_version(1), request)
    (command,) = quorum.commands
    assert isinstance(command, AlterConfigs)
    assert "hunter2" not in repr(command)
    sent = {change.name: change.value for change in command.resources[0].changes}
    assert (sent[refused], sent["log.segment.bytes"]) == ("", "2097152")
    assert SECRETS.open("1", sealed, sent[sealed] or "") == "hunter2"


@pytest.mark.parametrize(
    ("name", "operation", "value", "complaint"),
    [
        ("1", 0, "/a", ""),
        ("1", 0, " /b,/a", ""),
        ("1", 0, "*", ""),
        ("1", 0, "", ""),
        ("1", 0, "/a,/nowhere", "Missing entries : /nowhere"),
        ("1", 0, "*,/a", "must not contain other values"),
        ("1", 0, "/a,/a", "must not be duplicated"),
        ("1", 2, "/nowhere", "Missing entries : /nowhere"),
        ("1", 2, "/b", ""),
        ("1", 2, "/a", ""),
        ("1", 2, "*", "must not contain other values"),
        ("1", 3, "/nowhere", ""),
        ("", 0, "/a", "Cannot update these configs at default cluster level"),
        ("", 1, None, ""),
        ("2", 0, "/of broker 2", ""),
    ],
)
async def test_folders_to_cordon_are_those_there_are(
    name: str, operation: int, value: str | None, complaint: str
) -> None:
    quorum = RecordingQuorum()
    quorum.image.configs[4, "1"] = {"cordoned.log.dirs": "/a"}
    change = AlterableConfig(name="cordoned.log.dirs", config_operation=operation, value=value)
    resource = AlterConfigsResource(resource_type=4, resource_name=name, configs=[change])
    handlers = AlterConfigsHandlers(quorum, settings(quorum), SECRETS, [Path("/a"), Path("/b")])
    response = await handlers.incremental_alter_configs(
        at_version(1), IncrementalAlterConfigsRequest(resources=[resource])
    )
    assert complaint in (response.responses[0].error_message or "")
    assert response.responses[0].error_code == (ErrorCode.INVALID_REQUEST if complaint else 0)
    assert len(quorum.commands) == (not complaint)
