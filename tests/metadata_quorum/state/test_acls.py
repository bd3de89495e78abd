"""ACLs in the controller: refused and stored ACLs, removal by filters, and the feature that they need."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.metadata_quorum.state import acls as acl_decisions
from ottla.metadata_quorum.state.controller import Controller
from ottla.protocol.cluster.acls import (
    Acl,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
)
from ottla.protocol.cluster.cluster_image import ClusterImage
from ottla.protocol.cluster.image_delta import ImageDelta
from ottla.protocol.errors import ErrorCode
from ottla.protocol.features import SECURITY
from ottla.protocol.messages.acl_commands import (
    AclEntry,
    AclFilterEntry,
    CreateAcls,
    CreateAclsResult,
    DeleteAcls,
    DeleteAclsResult,
)
from ottla.protocol.messages.broker_commands import RegisterBroker
from ottla.protocol.messages.cluster_commands import FormCluster, InitialFeature
from ottla.protocol.messages.command import Command
from ottla.protocol.messages.metadata_records import BrokerFeature
from ottla.protocol.messages.quorum_commands import decode_result, encode_command
from ottla.protocol.messages.quota_commands import FeatureLevel, UpdateFeatures

ANN = Acl(
    AclResourceType.TOPIC,
    "orders",
    PatternType.LITERAL,
    "User:ann",
    "*",
    AclOperation.READ,
    AclPermission.ALLOW,
)


def do(controller: Controller, command: Command[Any]) -> Any:
    return decode_result(command, controller.apply(1, 1, encode_command(None, command)).result)


def formed(level: int = 1) -> Controller:
    controller = Controller()
    features = [InitialFeature(feature=SECURITY, level=level)] if level else []
    do(controller, FormCluster(cluster_id="c", features=features))
    return controller


def create(controller: Controller, *acls: Acl) -> list[str]:
    """Return the error message of each ACL; empty for success."""
    result: CreateAclsResult = do(controller, CreateAcls(acls=[AclEntry(**acl._asdict()) for acl in acls]))
    assert {acl.error_code for acl in result.results if acl.error_message} <= {ErrorCode.INVALID_REQUEST}
    return [acl.error_message for acl in result.results]


def delete(controller: Controller, *filters: AclFilter) -> DeleteAclsResult:
    command = DeleteAcls(filters=[AclFilterEntry(**wanted._asdict()) for wanted in filters])
    result: DeleteAclsResult = do(controller, command)
    return result


def removed(result: DeleteAclsResult) -> list[list[str]]:
    return [[acl.resource_name for acl in deletion.acls] for deletion in result.results]


def named(*names: str, **changed: Any) -> list[Acl]:
    return [ANN._replace(resource_name=name, **changed) for name in names]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"resource_type": AclResourceType.ANY}, "Invalid resourceType ANY"),
        ({"resource_type": 99}, "Invalid resourceType UNKNOWN(99)"),
        ({"pattern_type": PatternType.MATCH}, "Invalid patternType MATCH"),
        ({"operation": AclOperation.ANY}, "Invalid operation ANY"),
        ({"permission": AclPermission.UNKNOWN}, "Invalid permissionType UNKNOWN"),
        ({"resource_name": ""}, "Resource name should not be empty"),
        (
            {"resource_type": AclResourceType.CLUSTER},
            "The only valid name for the CLUSTER resource is kafka-cluster",
        ),
        ({"principal": "ann"}, "Could not parse principal from `ann`"),
        ({"host": ""}, "Host should not be empty"),
        ({"resource_name": "x" * 4097}, "Resource name is too long"),
        ({"principal": "User:" + "x" * 4092}, "Principal is too long"),
        ({"host": "10.0.0.0/33"}, "Invalid CIDR notation"),
        ({"host": "example.org"}, "it has to be *, an IP address, or a network in CIDR notation"),
    ],
)
def test_each_acl_is_checked_on_its_own(wrong: dict[str, Any], said: str) -> None:
    controller = formed()
    messages = create(controller, ANN._replace(**wrong), ANN)
    assert said in messages[0]
    assert not messages[1]
    assert controller.image.acls == {ANN}


def test_an_acl_that_is_there_makes_no_record() -> None:
    controller = formed()
    create(controller, ANN)
    offset = controller.image.offset
    assert create(controller, ANN, ANN) == ["", ""]
    assert controller.image.offset == offset


def test_a_host_has_one_form() -> None:
    controller = formed()
    create(
        controller,
        *(ANN._replace(host=host) for host in ("0:0:0:0:0:0:0:1", "::ffff:10.0.0.1", "10.9.9.9/8")),
    )
    assert sorted(acl.host for acl in controller.image.acls) == ["10.0.0.0/8", "10.0.0.1", "::1"]
    assert removed(delete(controller, AclFilter(host="0:0:0:0:0:0:0:1"))) == [["orders"]]


def test_an_acl_that_two_filters_find_is_told_by_both_and_removed_once() -> None:
    controller = formed()
    create(controller, *named("a", "b"))
    offset = controller.image.offset
    result = delete(controller, AclFilter(resource_name="a"), AclFilter())
    assert removed(result) == [["a"], ["a", "b"]]
    assert not controller.image.acls
    assert controller.image.offset == offset + 2


def test_match_finds_all_that_covers_a_resource() -> None:
    controller = formed()
    create(controller, *named("orders", "*", "other"))
    create(controller, *named("ord", "orders", "orders-eu", pattern_type=PatternType.PREFIXED))
    wanted = AclFilter(AclResourceType.TOPIC, "orders", PatternType.MATCH)
    assert removed(delete(controller, wanted)) == [["*", "ord", "orders", "orders"]]


@pytest.mark.parametrize("field", ["resource_type", "pattern_type", "operation", "permission"])
def test_a_filter_of_something_unknown_is_refused_and_the_others_count(field: str) -> None:
    controller = formed()
    create(controller, ANN)
    result = delete(controller, AclFilter()._replace(**{field: 0}), AclFilter())
    assert [deletion.error_code for deletion in result.results] == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    assert not controller.image.acls


def test_too_many_are_neither_created_nor_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    controller = formed()
    create(controller, *named("a", "b", "c"))
    monkeypatch.setattr(acl_decisions, "CHANGES_MAX", 2)
    assert delete(controller, AclFilter()).error_code == ErrorCode.POLICY_VIOLATION
    refused = do(controller, CreateAcls(acls=[AclEntry(**acl._asdict()) for acl in named("d", "e", "f")]))
    assert refused.error_code == ErrorCode.POLICY_VIOLATION
    assert controller.image.acls == set(named("a", "b", "c"))


def test_without_the_feature_there_are_no_acls() -> None:
    controller = formed(level=0)
    for command in (CreateAcls(acls=[AclEntry(**ANN._asdict())]), DeleteAcls(filters=[AclFilterEntry()])):
        refused = do(controller, command)
        assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert SECURITY in refused.error_message


def raise_level(controller: Controller, level: int = 1) -> Any:
    update = FeatureLevel(feature=SECURITY, level=level, upgrade_type=1 if level else 2)
    return do(controller, UpdateFeatures(updates=[update]))


def register(controller: Controller, broker_id: int, *features: BrokerFeature) -> Any:
    command = RegisterBroker(
        broker_id=broker_id, incarnation=bytes([broker_id]) * 16, features=list(features)
    )
    return do(controller, command)


def test_the_feature_waits_for_the_last_broker_that_does_not_know_it() -> None:
    controller = formed(level=0)
    knowing = BrokerFeature(name=SECURITY, most=1)
    register(controller, 1, knowing)
    register(controller, 2)
    refused = raise_level(controller)
    assert refused.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "broker 2" in refused.error_message
    controller.image.brokers.pop(2)
    assert not raise_level(controller).error_code
    assert register(controller, 2).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert not register(controller, 3, knowing).error_code


def test_the_feature_stays_while_there_are_acls() -> None:
    controller = formed()
    create(controller, ANN)
    assert raise_level(controller, 0).error_code == ErrorCode.INVALID_UPDATE_VERSION
    delete(controller, AclFilter())
    assert not raise_level(controller, 0).error_code


names = st.sampled_from(["a", "ab", "abc", "b", "*"])
acls = st.builds(
    Acl,
    st.sampled_from([AclResourceType.TOPIC, AclResourceType.GROUP]),
    names,
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    st.sampled_from(["User:ann", "User:*"]),
    st.sampled_from(["*", "10.0.0.1"]),
    st.sampled_from([AclOperation.READ, AclOperation.ALL]),
    st.sampled_from([AclPermission.ALLOW, AclPermission.DENY]),
)
filters = st.builds(
    AclFilter,
    st.sampled_from([AclResourceType.ANY, AclResourceType.TOPIC]),
    st.none() | names,
    st.sampled_from([PatternType.ANY, PatternType.MATCH, PatternType.LITERAL, PatternType.PREFIXED]),
    st.sampled_from([None, "User:ann"]),
    st.sampled_from([None, "*"]),
    st.sampled_from([AclOperation.ANY, AclOperation.READ]),
    st.sampled_from([AclPermission.ANY, AclPermission.DENY]),
)


def found_by(wanted: AclFilter, acl: Acl) -> bool:
    """Return whether a filter matches an ACL, by Kafka's description, field by field."""
    open_numbers = {"resource_type": 1, "operation": 1, "permission": 1}
    for field, anything in open_numbers.items():
        if getattr(wanted, field) not in (anything, getattr(acl, field)):
            return False
    if wanted.principal is not None and wanted.principal != acl.principal:
        return False
    if wanted.host is not None and wanted.host != acl.host:
        return False
    name = wanted.resource_name
    if wanted.pattern_type == PatternType.MATCH and name is not None:
        if acl.pattern_type == PatternType.LITERAL:
            return acl.resource_name in (name, "*")
        return name.startswith(acl.resource_name)
    is_kind = wanted.pattern_type in (PatternType.ANY, PatternType.MATCH, acl.pattern_type)
    return is_kind and name in (None, acl.resource_name)


@given(st.sets(acls, max_size=15), st.lists(filters, max_size=3))
def test_filters_find_what_kafka_describes(present: set[Acl], wanted: list[AclFilter]) -> None:
    controller = formed()
    create(controller, *present)
    result = delete(controller, *wanted)
    for acl_filter, deletion in zip(wanted, result.results, strict=True):
        expected = sorted(acl for acl in present if found_by(acl_filter, acl))
        assert [AclEntry(**acl._asdict()) for acl in expected] == deletion.acls
    assert controller.image.acls == {
        acl for acl in present if not any(found_by(acl_filter, acl) for acl_filter in wanted)
    }


@given(st.sets(acls, max_size=8), st.sets(acls, max_size=8))
def test_snapshots_and_deltas_tell_of_acls(first: set[Acl], second: set[Acl]) -> None:
    controller = formed()
    create(controller, *first)
    again = Controller()
    again.restore(list(controller.snapshot()))
    assert again.image.acls == first
    before, delta = again.image.frozen(), ImageDelta()
    records = [
        record
        for command in (
            DeleteAcls(filters=[AclFilterEntry(**AclFilter(*acl)._asdict()) for acl in first - second]),
            CreateAcls(acls=[AclEntry(**acl._asdict()) for acl in second]),
        )
        for _, record in again.apply(1, 1, encode_command(None, command)).records
    ]
    for record in records:
        delta.note(record)
    assert again.image.acls == second
    assert ImageDelta.between(before, again.image).acls == delta.acls
    rebuilt = ClusterImage()
    for record in again.image.records():
        rebuilt.apply(record)
    assert rebuilt.acls == second
