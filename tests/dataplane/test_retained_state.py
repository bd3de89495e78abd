"""The state that requests make a broker keep: each API declares it, each kind is bounded, and the
page has the table.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ottla.dataplane.assembly.retained_state import OF_EVERY_API, RETAINED, rows
from ottla.dataplane.quorum import metadata_room
from ottla.dataplane.quorum.metadata_room import check_room
from ottla.dataplane.quotas import QuotaLimits, QuotaWindows, RateQuota, rate_quota
from ottla.dataplane.server import HandlerTable
from ottla.protocol.cluster.acls import Acl
from ottla.protocol.cluster.cluster_image import ClusterImage, SealedCredential
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.acl_commands import AclEntry, CreateAcls
from ottla.protocol.messages.command import Command
from ottla.protocol.messages.config_commands import (
    AlterConfigs,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    ResourceType,
)
from ottla.protocol.messages.metadata_records import PartitionRecord, TopicRecord
from ottla.protocol.messages.mirror_commands import CreateMirror
from ottla.protocol.messages.quota_commands import (
    AlterClientQuotas,
    EntityQuotaChanges,
    QuotaChange,
    QuotaEntityPart,
)
from ottla.protocol.messages.topic_commands import CreatePartitions, CreateTopics, MorePartitions, NewTopic
from ottla.protocol.messages.user_commands import AlterScramCredentials, ScramCredentialChange
from tests.test_docs import handler_classes

TESTS = Path(__file__).parents[1]
TOPIC_ID = b"t" * 16


def test_every_api_says_what_it_makes_a_broker_keep() -> None:
    table = HandlerTable(*(object.__new__(each) for each in handler_classes()))
    served = [handler.request_class.__name__.removesuffix("Request") for handler in table]
    assert set(served) - set(RETAINED) == set(), "say in retained_state.py what the API keeps, and its bound"
    assert set(RETAINED) == set(served)


def test_each_kind_has_a_test_of_its_bound() -> None:
    found = {
        name
        for path in TESTS.rglob("test_*.py")
        for name in re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE)
    }
    named = {state.test for states in (*RETAINED.values(), OF_EVERY_API) for state in states}
    assert named <= found


def test_the_page_has_the_table() -> None:
    page = (TESTS.parent / "docs" / "SECURITY-GUIDE.md").read_text()
    section = page.partition("## What clients make a broker keep\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")][1:]
    assert lines == list(rows()), "\n".join(rows())


def setting(name: str, resource: str = "g", operation: int = ConfigOperation.SET) -> AlterConfigs:
    change = ConfigChange(name=name, operation=operation, value="1")
    return AlterConfigs(
        resources=[ConfigResource(resource_type=ResourceType.GROUP, resource_name=resource, changes=[change])]
    )


def quota(user: str, *, remove: bool = False) -> AlterClientQuotas:
    entity = [QuotaEntityPart(entity_type="user", entity_name=user)]
    change = QuotaChange(key="producer_byte_rate", value=1.0, remove=remove)
    return AlterClientQuotas(entries=[EntityQuotaChanges(entity=entity, changes=[change])])


def password(user: str, sealed: bytes = b"s") -> AlterScramCredentials:
    return AlterScramCredentials(changes=[ScramCredentialChange(name=user, mechanism=1, sealed_keys=sealed)])


def image() -> ClusterImage:
    """Return an image with one of each kind, and a topic of two partitions."""
    found = ClusterImage()
    found.apply(TopicRecord(topic_id=TOPIC_ID, name="t"))
    for index in range(2):
        found.apply(PartitionRecord(topic_id=TOPIC_ID, partition=index, replicas=[1], isr=[1], leader=1))
    found.configs[ResourceType.GROUP, "g"] = {"a": "1"}
    found.client_quotas[(("user", "ann"),)] = {"producer_byte_rate": 1.0}
    found.acls.add(Acl(2, "t", 3, "User:ann", "*", 3, 3))
    found.scram_credentials["ann", 1] = SealedCredential(b"s", b"k", 4096)
    found.mirrors.by_name["m"] = None  # type: ignore[assignment]
    return found


@pytest.mark.parametrize(
    ("bound", "fitting", "refused", "shrinking"),
    [
        ("PARTITIONS_MAX", 3, CreateTopics(topics=[NewTopic(name="n", num_partitions=2)]), None),
        ("PARTITIONS_MAX", 3, CreatePartitions(topics=[MorePartitions(name="t", count=4)]), None),
        ("SETTINGS_MAX", 1, setting("b"), setting("a")),
        ("SET_RESOURCES_MAX", 1, setting("a", "h"), setting("a", "h", ConfigOperation.DELETE)),
        ("QUOTAS_MAX", 1, quota("bob"), quota("bob", remove=True)),
        ("ACLS_MAX", 1, CreateAcls(acls=[AclEntry()]), CreateAcls()),
        ("USERS_MAX", 1, password("bob"), password("bob", b"")),
        ("MIRRORS_MAX", 1, CreateMirror(name="n"), None),
    ],
)
def test_metadata_of_each_kind_is_bounded(
    bound: str,
    fitting: int,
    refused: Command[object],  # type: ignore[type-var]
    shrinking: Command[object] | None,  # type: ignore[type-var]
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check_room(image(), refused)
    monkeypatch.setattr(metadata_room, bound, fitting)
    with pytest.raises(KafkaError) as error:
        check_room(image(), refused)
    assert error.value.code is ErrorCode.POLICY_VIOLATION
    if shrinking is not None:
        check_room(image(), shrinking)


def test_measures_of_clients_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request may come under another client id, of 32 KB."""
    monkeypatch.setattr(rate_quota, "MEASURES_MAX", 2000)
    limits = QuotaLimits({(("client-id", None),): {"producer_byte_rate": 1.0}}, "producer_byte_rate")
    quota_of_clients = RateQuota(QuotaWindows(), limits)
    for number in range(5000):
        quota_of_clients.charge("ann", f"{number:05}" + "c" * 30_000, 1.0, float(number % 100))
    kept = quota_of_clients._measures._kept
    assert len(kept) <= 2000
    assert max(len(client_id or "") for _, client_id in kept) < 1000
    assert quota_of_clients.charge("ann", "greedy", 100.0, 100.0) > 0
