"""Every API with an authorizer: its required rights, its errors without them, and no disclosure of denied resources.

All peers are User:ANONYMOUS. The administrator is recognised by its address, which the ACLs name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ottla.cli.main import main
from ottla.protocol.cluster.acls import CLUSTER_NAME, Acl, AclPermission, PatternType
from ottla.protocol.cluster.authorizer_settings import STANDARD_AUTHORIZER
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import topic_partitions
from ottla.protocol.messages.acls import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.cluster import DescribeClusterRequest
from ottla.protocol.messages.failback import DescribeLineagesRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.groups import (
    ListGroupsRequest,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from ottla.protocol.messages.producers import InitProducerIdRequest
from ottla.protocol.messages.share_fetch import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    AcknowledgeType,
    ShareAcknowledgeRequest,
)
from ottla.protocol.messages.share_group_description import ShareGroupDescribeRequest
from ottla.protocol.messages.share_group_offsets import DescribeShareGroupOffsetsRequest, WantedGroup
from ottla.protocol.messages.share_groups import ShareGroupHeartbeatRequest
from ottla.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from ottla.protocol.messages.transaction_descriptions import (
    ListTransactionsRequest,
)
from ottla.protocol.messages.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from ottla.protocol.wire.schema import Message
from tests import java
from tests.cluster import running_cluster, wait_until
from tests.integration.api_rights import (
    GROUP,
    MISSING,
    ROWS,
    SHARE_GROUP,
    SHOWN_APART,
    TOPIC,
    TXN,
    Kind,
    Op,
    Right,
    Row,
    alter_share_offsets,
    cluster,
    delete_topics,
    fetch,
    group,
    metadata,
    offset_commit,
    produce,
    share_group,
    take_records,
    topic,
    txn,
)
from tests.raw_peer import Peer

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("authorization")]

ADMIN, CLIENT = "127.0.0.9", "127.0.0.1"


class Broker(NamedTuple):
    port: int
    topic_id: bytes

    def ask(self, request: Message, version: int, source: str = CLIENT) -> Any:
        peer = Peer(self.port, source=source)
        try:
            return peer.ask(request, version, 20)
        finally:
            peer.close()

    def rights(self, *rights: Right, denied: Sequence[Right] = ()) -> None:
        """Give the client exactly these rights."""
        forget = DeleteAclsFilter(
            resource_type_filter=1, pattern_type_filter=1, host_filter=CLIENT, operation=1, permission_type=1,
            resource_name_filter=None, principal_filter=None,
        )  # fmt: skip
        self.ask(DeleteAclsRequest(filters=[forget]), 3, ADMIN)
        self.create([acl(right) for right in rights] + [acl(right, AclPermission.DENY) for right in denied])

    def create(self, acls: Sequence[Acl], source: str = ADMIN) -> None:
        creations = [
            AclCreation(
                resource_type=entry.resource_type,
                resource_name=entry.resource_name,
                resource_pattern_type=entry.pattern_type,
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permission_type=entry.permission,
            )
            for entry in acls
        ]
        answer = self.ask(CreateAclsRequest(creations=creations), 3, source)
        assert [result.error_code for result in answer.results] == [0] * len(acls), answer


def acl(right: Right, permission: AclPermission = AclPermission.ALLOW, host: str = CLIENT) -> Acl:
    return Acl(
        right.kind, right.name, PatternType.LITERAL, "User:ANONYMOUS", host, right.operation, permission
    )


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    folder: Path = tmp_path_factory.mktemp("authorization")
    settings = {
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "allow.everyone.if.no.acl.found": "true",
        "offsets.topic.num.partitions": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        "auto.create.topics.enable": "true",
    }
    with running_cluster(folder, quorum=1, brokers=1, settings=settings) as running:
        port = int(running.bootstrap.rpartition(":")[2])
        found = Broker(port, b"")
        everything = [
            acl(Right(kind, name, Op.ALL, ErrorCode.NONE), host=ADMIN)
            for kind, name in (
                (Kind.CLUSTER, CLUSTER_NAME), (Kind.TOPIC, "*"), (Kind.GROUP, "*"), (Kind.TRANSACTIONAL_ID, "*"),
            )
        ]  # fmt: skip
        found.create(everything)
        made = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
        answer = found.ask(CreateTopicsRequest(topics=[made], timeout_ms=10_000), 7, ADMIN)
        found.ask(FindCoordinatorRequest(key=GROUP), 3, ADMIN)
        wait_until(
            lambda: codes(found.ask(offset_commit(8)(TOPIC, b""), 8, ADMIN)) == {0}, "a group with an offset"
        )
        yield Broker(port, answer.topics[0].topic_id)


def codes(message: Message) -> set[int]:
    """Return all error codes in a message."""
    found: set[int] = set()
    for field in message.schema.fields:
        value = getattr(message, field.name)
        if field.name.endswith("error_code"):
            found.add(value)
        elif isinstance(value, list):
            found.update(*(codes(part) for part in value if isinstance(part, Message)))
    return found


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_an_api_needs_each_of_its_rights(broker: Broker, row: Row) -> None:
    request = row.request(TOPIC, broker.topic_id)
    for right in row.rights:
        broker.rights(*(other for other in row.rights if other is not right))
        assert right.code in codes(broker.ask(request, row.version)), f"without {right}"
        broker.rights(*row.rights, denied=[right])
        assert right.code in codes(broker.ask(request, row.version)), f"with {right} denied"


@pytest.mark.parametrize(
    "row", [row for row in ROWS if any(right.name == TOPIC for right in row.rights)], ids=lambda row: row.name
)
def test_what_is_denied_is_not_told(broker: Broker, row: Row) -> None:
    """The answer about an existing topic equals the answer about a missing one."""
    if row.leaks:
        pytest.skip("topics by id")
    broker.rights(*(right for right in row.rights if right.name != TOPIC))
    there = repr(broker.ask(row.request(TOPIC, bytes(16)), row.version))
    missing = repr(broker.ask(row.request(MISSING, bytes(16)), row.version))
    assert there == missing.replace(MISSING, TOPIC)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_with_its_rights_an_api_is_not_denied(broker: Broker, row: Row) -> None:
    broker.rights(*row.rights)
    if any(right.operation == Op.DELETE and right.kind == Kind.TOPIC for right in row.rights):
        request = row.request(MISSING, b"\1" * 16)
        broker.rights(*(right._replace(name=MISSING) for right in row.rights))
    else:
        request = row.request(TOPIC, broker.topic_id)
    found = codes(broker.ask(request, row.version))
    assert not found & {right.code for right in row.rights}


def test_every_api_has_a_row(broker: Broker) -> None:
    listed = broker.ask(ApiVersionsRequest(), 0)
    covered = {type(row.request(TOPIC, bytes(16))).schema.api_key for row in ROWS}
    covered |= {request.schema.api_key for request in SHOWN_APART}
    assert {api.api_key for api in listed.api_keys} - covered == {20007}, "AuthenticateNode is a proof itself"


def test_lists_leave_out_what_may_not_be_described(broker: Broker) -> None:
    everything = MetadataRequest(topics=None)
    broker.rights()
    assert [shown.name for shown in broker.ask(everything, 12).topics] == []
    broker.rights(topic(Op.READ))
    assert [shown.name for shown in broker.ask(everything, 12).topics] == [TOPIC]
    pages = topic_partitions.DescribeTopicPartitionsRequest(response_partition_limit=10)
    assert [shown.name for shown in broker.ask(pages, 0).topics] == [TOPIC]
    logs = DescribeLineagesRequest(topics=".*")
    assert [shown.name for shown in broker.ask(logs, 0).topics] == [TOPIC]
    broker.rights()
    assert broker.ask(pages, 0).topics == []
    assert broker.ask(logs, 0).topics == []


def test_groups_and_transactional_ids_are_listed_as_far_as_they_may_be_described(broker: Broker) -> None:
    commit: Any = offset_commit(8)(TOPIC, b"")
    commit.group_id = "others"
    broker.ask(commit, 8, ADMIN)
    others = group(Op.DESCRIBE)._replace(name="others")
    init = InitProducerIdRequest(
        transactional_id=TXN, transaction_timeout_ms=1000, producer_id=-1, producer_epoch=-1
    )
    broker.ask(init, 4, ADMIN)

    def listed() -> tuple[list[str], list[str]]:
        groups = broker.ask(ListGroupsRequest(), 4).groups
        transactions = broker.ask(ListTransactionsRequest(), 0).transaction_states
        return [known.group_id for known in groups if known.group_id == "others"], [
            transaction.transactional_id for transaction in transactions
        ]

    broker.rights()
    assert listed() == ([], [])
    broker.rights(others, txn(Op.DESCRIBE))
    assert listed() == (["others"], [TXN])
    broker.rights(cluster(Op.DESCRIBE))
    assert listed() == (["others"], [])
    broker.rights(others)
    everything = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="others", topics=None)])
    assert broker.ask(everything, 8).groups[0].topics == []
    broker.rights(others, topic(Op.DESCRIBE))
    assert [shown.name for shown in broker.ask(everything, 8).groups[0].topics] == [TOPIC]


def test_a_client_is_told_the_operations_that_it_may_do(broker: Broker) -> None:
    broker.rights(topic(Op.READ), cluster(Op.DESCRIBE), cluster(Op.ALTER))
    found = broker.ask(metadata(False)(TOPIC, b""), 12).topics[0]
    assert found.topic_authorized_operations == 1 << Op.READ | 1 << Op.DESCRIBE
    asked = DescribeClusterRequest(include_cluster_authorized_operations=True)
    assert broker.ask(asked, 0).cluster_authorized_operations == 1 << Op.DESCRIBE | 1 << Op.ALTER
    broker.rights(cluster(Op.CREATE))
    assert broker.ask(asked, 0).cluster_authorized_operations == 0


def test_a_topic_is_created_on_demand_by_those_who_may_create_it(broker: Broker) -> None:
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="new")], allow_auto_topic_creation=True)
    for rights in ([], [topic(Op.DESCRIBE, "new")], [topic(Op.CREATE, "new")]):
        broker.rights(*rights)
        assert ErrorCode.TOPIC_AUTHORIZATION_FAILED in codes(broker.ask(asked, 12))
    broker.rights(topic(Op.DESCRIBE, "new"), topic(Op.CREATE, "new"))
    assert ErrorCode.TOPIC_AUTHORIZATION_FAILED not in codes(broker.ask(asked, 12))
    gone = DeleteTopicsRequest(topics=[DeleteTopicState(name="new")], timeout_ms=10_000)
    assert codes(broker.ask(gone, 6, ADMIN)) == {0}


def test_settings_of_a_new_topic_are_shown_to_those_who_may_describe_them(broker: Broker) -> None:
    made = CreateTopicsRequest(
        topics=[CreatableTopic(name="new", num_partitions=1, replication_factor=1)], validate_only=True
    )
    broker.rights(cluster(Op.CREATE))
    hidden = broker.ask(made, 7).topics[0]
    assert hidden.topic_config_error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert not hidden.configs
    broker.rights(cluster(Op.CREATE), topic(Op.DESCRIBE_CONFIGS, "new"))
    assert broker.ask(made, 7).topics[0].configs


def test_whoever_may_delete_any_topic_needs_no_right_on_it(broker: Broker) -> None:
    asked = delete_topics(False)(MISSING, b"")
    broker.rights(cluster(Op.DELETE))
    assert codes(broker.ask(asked, 6)) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    broker.rights(topic(Op.DESCRIBE, MISSING))
    assert codes(broker.ask(asked, 6)) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    broker.rights(topic(Op.DESCRIBE))
    assert codes(broker.ask(delete_topics(False)(TOPIC, b""), 6)) == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}


def test_an_idempotent_producer_needs_a_right_on_some_topic(broker: Broker) -> None:
    asked = InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=1000, producer_id=-1, producer_epoch=-1
    )
    broker.rights(topic(Op.WRITE))
    assert codes(broker.ask(asked, 4)) == {0}
    broker.rights(topic(Op.READ))
    assert codes(broker.ask(asked, 4)) == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}


def test_a_partition_of_an_epoch_may_be_asked_for_by_nodes_or_readers(broker: Broker) -> None:
    row = next(row for row in ROWS if row.name.startswith("OffsetForLeaderEpoch"))
    broker.rights(cluster(Op.CLUSTER_ACTION))
    assert codes(broker.ask(row.request(TOPIC, b""), row.version)) == {0}


def test_markers_are_for_nodes_whatever_acls_say(broker: Broker) -> None:
    broker.rights(cluster(Op.ALTER), cluster(Op.CLUSTER_ACTION))
    marker = WritableTxnMarker(
        producer_id=1, topics=[WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[0])]
    )
    asked = WriteTxnMarkersRequest(markers=[marker])
    assert codes(broker.ask(asked, 1)) == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}


def test_a_fetch_session_follows_the_acls(broker: Broker) -> None:
    """A partition without new records is denied as soon as its ACL is removed, and returns with the ACL."""
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    begin = FetchRequest(
        replica_id=-1, max_bytes=1 << 20, session_epoch=0, topics=[FetchTopic(topic=TOPIC, partitions=[part])]
    )
    broker.rights(topic(Op.READ))
    peer = Peer(broker.port)
    first = peer.ask(begin, 12)
    assert codes(first) == {0}
    behind = FetchPartition(
        partition=0, fetch_offset=first.responses[0].partitions[0].high_watermark, partition_max_bytes=1 << 20
    )
    session = first.session_id

    def go_on(epoch: int, *topics: FetchTopic) -> Any:
        request = FetchRequest(
            replica_id=-1, max_bytes=1 << 20, session_id=session, session_epoch=epoch, topics=list(topics)
        )
        return peer.ask(request, 12)

    assert codes(go_on(1, FetchTopic(topic=TOPIC, partitions=[behind]))) == {0}
    assert go_on(2).responses == []
    broker.rights()
    assert ErrorCode.TOPIC_AUTHORIZATION_FAILED in codes(go_on(3))
    assert ErrorCode.TOPIC_AUTHORIZATION_FAILED in codes(go_on(4))
    broker.rights(topic(Op.READ))
    assert codes(go_on(5)) == {0}
    peer.close()


def test_acknowledgements_need_the_rights_with_which_the_records_were_taken(broker: Broker) -> None:
    """The rights are checked with each request of the share session."""
    broker.rights(share_group(Op.READ), topic(Op.READ))
    peer = Peer(broker.port)
    assert codes(peer.ask(take_records(TOPIC, broker.topic_id), 2)) == {0}
    batch = AcknowledgementBatch(first_offset=0, last_offset=0, acknowledge_types=[AcknowledgeType.ACCEPT])
    part = AcknowledgePartition(partition_index=0, acknowledgement_batches=[batch])

    def acknowledged(epoch: int) -> set[int]:
        request = ShareAcknowledgeRequest(
            group_id=SHARE_GROUP,
            member_id="m",
            share_session_epoch=epoch,
            topics=[AcknowledgeTopic(topic_id=broker.topic_id, partitions=[part])],
        )
        return codes(peer.ask(request, 2))

    broker.rights(topic(Op.READ))
    assert acknowledged(1) == {ErrorCode.GROUP_AUTHORIZATION_FAILED}
    broker.rights(share_group(Op.READ))
    assert acknowledged(1) == {0, ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    broker.rights(share_group(Op.READ), topic(Op.READ))
    assert not acknowledged(2) & {
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
    peer.close()


def test_a_share_group_is_described_to_those_who_may_describe_the_topics_of_its_members(
    broker: Broker,
) -> None:
    name = "described"
    join = ShareGroupHeartbeatRequest(group_id=name, member_id="m", subscribed_topic_names=[TOPIC])
    assert codes(broker.ask(join, 1, ADMIN)) == {0}
    asked = ShareGroupDescribeRequest(group_ids=[name])
    broker.rights(group(Op.DESCRIBE, name))
    assert codes(broker.ask(asked, 1)) == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert broker.ask(asked, 1).groups[0].members == []
    broker.rights(group(Op.DESCRIBE, name), topic(Op.DESCRIBE))
    assert [member.member_id for member in broker.ask(asked, 1).groups[0].members] == ["m"]


def test_all_start_offsets_are_those_of_topics_that_may_be_described(broker: Broker) -> None:
    altered = broker.ask(alter_share_offsets(TOPIC, b""), 0, ADMIN)
    assert codes(altered) == {0}
    everything = DescribeShareGroupOffsetsRequest(groups=[WantedGroup(group_id=SHARE_GROUP, topics=None)])
    broker.rights(share_group(Op.DESCRIBE))
    assert broker.ask(everything, 1).groups[0].topics == []
    broker.rights(share_group(Op.DESCRIBE), topic(Op.DESCRIBE))
    assert [shown.topic_name for shown in broker.ask(everything, 1).groups[0].topics] == [TOPIC]


def test_a_fetch_that_waits_ends_denied_if_its_acl_goes(broker: Broker) -> None:
    broker.rights(topic(Op.READ))
    end = broker.ask(fetch(TOPIC, b""), 12).responses[0].partitions[0].high_watermark
    part = FetchPartition(partition=0, fetch_offset=end, partition_max_bytes=1 << 20)
    waits = FetchRequest(
        replica_id=-1, max_wait_ms=20_000, min_bytes=1, max_bytes=1 << 20, session_epoch=-1,
        topics=[FetchTopic(topic=TOPIC, partitions=[part])],
    )  # fmt: skip
    peer = Peer(broker.port)
    peer.send(waits, 12)
    broker.rights()
    broker.ask(produce(9)(TOPIC, b""), 9, ADMIN)
    answer = peer.receive(waits, 12, 10)
    assert codes(answer) == {0, ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert not answer.responses[0].partitions[0].records
    peer.close()


def test_a_fetch_that_is_repeated_ends_denied_if_its_acl_goes(broker: Broker) -> None:
    broker.ask(produce(9)(TOPIC, b""), 9, ADMIN)
    broker.rights(topic(Op.READ))
    peer = Peer(broker.port)
    for _ in range(3):
        assert codes(peer.ask(fetch(TOPIC, b""), 12)) == {0}
    broker.rights()
    assert ErrorCode.TOPIC_AUTHORIZATION_FAILED in codes(peer.ask(fetch(TOPIC, b""), 12))
    broker.rights(topic(Op.READ))
    for _ in range(3):
        assert codes(peer.ask(fetch(TOPIC, b""), 12)) == {0}
    peer.close()


def test_acls_are_listed_in_order_and_removed_at_once(broker: Broker) -> None:
    broker.rights(topic(Op.READ, "b"), topic(Op.READ, "a"), group(Op.READ), topic(Op.ALL, "a"))
    asked = DescribeAclsRequest(
        resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1, host_filter=CLIENT,
        resource_name_filter=None, principal_filter=None,
    )  # fmt: skip
    found = broker.ask(asked, 3, ADMIN).resources
    assert [
        (result.resource_type, result.resource_name, [a.operation for a in result.acls]) for result in found
    ] == [
        (Kind.TOPIC, "a", [Op.ALL, Op.READ]),
        (Kind.TOPIC, "b", [Op.READ]),
        (Kind.GROUP, GROUP, [Op.READ]),
    ]
    broker.rights()
    assert broker.ask(asked, 3, ADMIN).resources == []


def acl_command(broker: Broker, *words: str) -> int:
    return main(["acl", *words, "-b", f"127.0.0.1:{broker.port}"])


def test_the_command_line_creates_lists_checks_and_removes(
    broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    broker.rights(cluster(Op.ALTER), cluster(Op.DESCRIBE), cluster(Op.DESCRIBE_CONFIGS))
    eve = ("--principal", "User:eve")
    created = acl_command(
        broker, "create", *eve, "--operation", "read", "--operation", "write", "--topic", "in-", "--prefixed"
    )
    assert created == 0
    capsys.readouterr()
    assert acl_command(broker, "list", *eve, "-o", "json") == 0
    listed = json.loads(capsys.readouterr().out)
    assert [entry["operation"] for entry in listed] == ["READ", "WRITE"]
    assert {entry["pattern_type"] for entry in listed} == {"PREFIXED"}
    assert acl_command(broker, "list", "--topic", "in-7", "--covering", *eve, "--operation", "READ") == 0
    assert "in-" in capsys.readouterr().out
    asked = (*eve, "--host", "10.0.0.7", "--topic", "in-7", "--operation")
    assert acl_command(broker, "check", *asked, "DESCRIBE") == 0
    words = "ALLOW User:eve READ on every topic whose name begins with in- from any host"
    assert f"ACL: {words}" in " ".join(capsys.readouterr().out.split())
    assert acl_command(broker, "check", *asked, "ALTER") == 1
    assert "no ACL allows it" in capsys.readouterr().out
    anywhere = (*eve, "--topic", "in-7", "--operation", "READ")
    assert acl_command(broker, "check", *anywhere) == 0
    assert "from any host (*)" in capsys.readouterr().err
    assert acl_command(broker, "check", *anywhere, "-o", "json") == 0
    captured = capsys.readouterr()
    assert (json.loads(captured.out)[0]["host"], captured.err) == ("*", "")
    assert json.loads(captured.out)[0]["rule"].startswith("MatchingAcl(ALLOW User:eve")
    assert acl_command(broker, "check", *eve, "--cluster", "--operation", "IDEMPOTENT_WRITE") == 1
    assert "WRITE on a topic suffices" in capsys.readouterr().err
    created = acl_command(broker, "create", "--deny", *eve, "--operation", "read", "--topic", "in-")
    assert created == 0
    capsys.readouterr()
    for words, count in (("--deny", 1), ("--allow", 2), ("--literal", 1), ("--prefixed", 2)):
        assert acl_command(broker, "list", *eve, "--topic", "in-", words, "-o", "json") == 0
        assert len(json.loads(capsys.readouterr().out)) == count
    assert acl_command(broker, "delete", *eve, "--topic", "in-", "--literal", "--deny", "--yes") == 0
    assert capsys.readouterr().out.count("User:eve") == 1
    assert acl_command(broker, "delete", *eve, "--yes") == 0
    assert capsys.readouterr().out.count("User:eve") == 2
    assert acl_command(broker, "list", *eve) == 0
    assert "There are no such ACLs." in capsys.readouterr().err
    assert acl_command(broker, "list", *eve, "-o", "json") == 0
    assert json.loads(capsys.readouterr().out) == []


def test_the_command_line_says_what_is_wrong(broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    broker.rights()
    for words, said in (
        (("check", "--principal", "User:e", "--host", "h", "--topic", "t", "--operation", "raed"), "READ"),
        (("list", "--covering"), "--covering needs the name of a resource"),
        (("list",), "CLUSTER_AUTHORIZATION_FAILED"),
        (
            ("check", "--principal", "User:e", "--topic", "t", "--operation", "READ"),
            "broker 1: denied: DESCRIBE_CONFIGS on cluster",
        ),
    ):
        assert acl_command(broker, *words) in (1, 2)
        assert said in capsys.readouterr().err


@pytest.mark.java
@java.needs_java
def test_kafkas_tool_adds_lists_and_removes(broker: Broker, tools: java.Tools) -> None:
    broker.rights(cluster(Op.ALTER), cluster(Op.DESCRIBE))
    tool = ("org.apache.kafka.tools.AclCommand", "--bootstrap-server", f"127.0.0.1:{broker.port}")
    principal = ("--allow-principal", "User:java")
    tools.run(*tool, "--add", *principal, "--producer", "--idempotent", "--topic", "made-by-java")
    tools.run(
        *tool,
        "--add",
        *principal,
        "--consumer",
        "--group",
        "g",
        "--topic",
        "made",
        "--resource-pattern-type",
        "prefixed",
    )
    listed = tools.run(*tool, "--list", "--principal", "User:java")
    assert "IDEMPOTENT_WRITE" in listed
    assert "patternType=PREFIXED" in listed
    tools.run(
        *tool, "--remove", "--force", *principal, "--producer", "--idempotent", "--topic", "made-by-java"
    )
    assert "made-by-java" not in tools.run(*tool, "--list", "--principal", "User:java")


def test_brokers_follow_each_other_without_any_acl(tmp_path: Path) -> None:
    """Only the super user has rights. Brokers have proved their identity, and need no ACL."""
    settings = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
    with running_cluster(tmp_path, quorum=1, brokers=2, settings=settings) as running:
        both = [Broker(int(node.address.rpartition(":")[2]), b"") for node in running.brokers]
        made = CreatableTopic(
            name=TOPIC,
            num_partitions=1,
            replication_factor=2,
            configs=[CreatableTopicConfig(name="min.insync.replicas", value="2")],
        )
        assert codes(both[0].ask(CreateTopicsRequest(topics=[made], timeout_ms=10_000), 7)) == {0}
        wait_until(
            lambda: any(codes(broker.ask(produce(9)(TOPIC, b""), 9)) == {0} for broker in both),
            "a record on both brokers",
        )
