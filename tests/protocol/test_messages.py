"""Every message in every version compared with kio: each side reads the other's encoding."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.protocol import messages
from ottla.protocol.messages.headers import FIRST_FLEXIBLE
from ottla.protocol.wire.codec import decode_from, encode
from ottla.protocol.wire.schema import HIGHEST_VERSION, Message
from tests.protocol.kio_bridge import kio_class, kio_decode, kio_encode, random_message, same

MODULES = (
    "api_versions",
    "broker_removal",
    "client_quotas",
    "cluster",
    "config_resources",
    "quorum_description",
    "configs",
    "consumer_group_description",
    "consumer_groups",
    "consumer_protocol",
    "delegation_tokens",
    "delete_records",
    "describe_producers",
    "features",
    "fetch",
    "find_coordinator",
    "groups",
    "leaders",
    "list_offsets",
    "log_dirs",
    "metadata",
    "offset_delete",
    "offset_for_leader_epoch",
    "offsets",
    "produce",
    "producers",
    "reassignments",
    "share_fetch",
    "share_group_description",
    "share_group_offsets",
    "share_group_state",
    "share_groups",
    "topic_partitions",
    "topics",
    "transaction_descriptions",
    "transactions",
)
ALL_MODULES = tuple(found.name for found in pkgutil.iter_modules(messages.__path__))
EXAMPLES = settings(max_examples=8, database=None)


def declared(modules: tuple[str, ...] = MODULES) -> list[type[Message]]:
    """Return the messages with their own versions."""
    found = []
    for name in modules:
        module = importlib.import_module(f"ottla.protocol.messages.{name}")
        for cls in vars(module).values():
            if not inspect.isclass(cls) or not issubclass(cls, Message) or cls.__module__ != module.__name__:
                continue
            if hasattr(cls, "schema") and cls.schema.versions.last < HIGHEST_VERSION:
                found.append(cls)
    return found


def versions() -> list[tuple[type[Message], int]]:
    return [
        (cls, version)
        for cls in declared()
        for version in range(cls.schema.versions.first, cls.schema.versions.last + 1)
    ]


def known_to_kio(cls: type[Message], version: int) -> bool:
    try:
        kio_class(cls, version)
    except ModuleNotFoundError:
        return False
    return True


@pytest.mark.parametrize(("cls", "version"), versions(), ids=lambda v: getattr(v, "__name__", v))
def test_agrees_with_kio(cls: type[Message], version: int) -> None:
    if not known_to_kio(cls, version):
        pytest.skip("kio has no such version")
    kio = kio_class(cls, version)

    @EXAMPLES
    @given(st.integers(0, 1 << 32))
    def check(seed: int) -> None:
        message = random_message(Random(seed), cls, version, kio)
        encoded = encode(message, version)
        entity = kio_decode(kio, encoded)
        assert same(message, entity, version)
        theirs = kio_encode(entity)
        for buffer in (theirs, memoryview(encoded)):
            decoded, end = decode_from(cls, buffer, version)
            assert decoded == message
            assert end == len(buffer)

    check()


def test_only_versions_that_kafka_removed_or_has_just_added_are_unchecked() -> None:
    unchecked = {(cls.__name__, version) for cls, version in versions() if not known_to_kio(cls, version)}
    assert unchecked <= {
        *(("ProduceRequest", v) for v in range(3)),
        *(("ProduceResponse", v) for v in range(3)),
        ("OffsetCommitRequest", 1),
        ("OffsetCommitResponse", 1),
        ("ApiVersionsRequest", 5),
        ("ApiVersionsResponse", 5),
        ("TxnOffsetCommitRequest", 6),
        ("TxnOffsetCommitResponse", 6),
        ("DeleteGroupsRequest", 3),
        ("DeleteGroupsResponse", 3),
        # Kafka's assignors have these in their code: members of its clients check them (test_rebalancing.py).
        ("StickyAssignorUserData", 0),
        ("StickyAssignorUserData", 1),
        ("CooperativeStickyAssignorUserData", 0),
    }


def test_headers_know_where_flexible_versions_begin() -> None:
    wrong = [
        cls.__name__
        for cls in declared(ALL_MODULES)
        if cls.schema.api_key >= 0
        and FIRST_FLEXIBLE.get(cls.schema.api_key, HIGHEST_VERSION + 1) != cls.schema.flexible.first
    ]
    assert not wrong, "give their first flexible version in protocol/messages/headers.py"
