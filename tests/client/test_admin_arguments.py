"""Every method of the admin client refuses arguments of the wrong kind and values out of bounds, with an error that
names the argument, the given value and the allowed values.

The admin clients here were never started: a method that went on to send anything would raise RuntimeError.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, get_type_hints

import pytest

import ottla.sync
from ottla import Admin, NewTopic, TopicPartition
from ottla.client.admin import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    BegunTransaction,
    Cut,
    HangingTransaction,
    ProducerDescription,
    UserPassword,
)
from ottla.client.admin.values import ResourceType, config_text
from ottla.client.kinds import checks_arguments
from ottla.client.objects.urls import FORMS
from ottla.protocol.cluster.acls import Acl, AclFilter

PLACE = TopicPartition("orders", 0)
FITTING: dict[Any, Any] = {
    str: "orders",
    int: 1,
    bytes: b"x",
    ResourceType: TOPIC_RESOURCE,
    Cut: Cut(1),
    BegunTransaction: BegunTransaction("id", 1, 1, 1, "token"),
    HangingTransaction: HangingTransaction(PLACE, ProducerDescription(1, 1, 1, 1, 1, 1)),
}
"""An argument of each kind that a required parameter has; lists and mappings may be empty."""


def methods() -> Iterator[str]:
    for name, method in inspect.getmembers(Admin, inspect.isfunction):
        if not name.startswith("_") and len(inspect.signature(method).parameters) > 1:
            yield name


def parameters() -> Iterator[tuple[str, str]]:
    for name in methods():
        for parameter in list(inspect.signature(getattr(Admin, name)).parameters)[1:]:
            yield name, parameter


def fitting(method: Callable[..., Any], besides: str) -> dict[str, Any]:
    """Return an argument for each required parameter but one."""
    plain, bounded = get_type_hints(method), get_type_hints(method, include_extras=True)
    return {
        parameter.name: FITTING.get(bounded[parameter.name], FITTING.get(plain[parameter.name], {}))
        for parameter in inspect.signature(method).parameters.values()
        if parameter.name not in ("self", besides) and parameter.default is parameter.empty
    }


async def refusal(name: str, arguments: dict[str, Any], kind: type[Exception] = TypeError) -> str:
    """Return the text of the error that both admin clients raise."""
    with pytest.raises(kind) as waiting:
        await getattr(Admin(), name)(**arguments)
    with pytest.raises(kind) as blocking:
        getattr(ottla.sync.Admin(), name)(**arguments)
    assert str(waiting.value) == str(blocking.value)
    return str(waiting.value)


@pytest.mark.parametrize(("name", "parameter"), list(parameters()))
async def test_every_parameter_is_checked(name: str, parameter: str) -> None:
    method = getattr(Admin, name)
    refused = await refusal(name, {**fitting(method, parameter), parameter: object()})
    assert refused.startswith(f"{name}: {parameter} is ")


LISTS = [
    (name, parameter)
    for name, parameter in parameters()
    if "Iterable[" in (hint := str(inspect.signature(getattr(Admin, name)).parameters[parameter].annotation))
    or "Sequence[" in hint
    if not hint.startswith("Mapping")
]


@pytest.mark.parametrize("given", ["ab", b"ab", PLACE])
@pytest.mark.parametrize(("name", "parameter"), LISTS)
async def test_one_value_in_place_of_a_list_is_not_taken_apart(name: str, parameter: str, given: Any) -> None:
    refused = await refusal(name, {**fitting(getattr(Admin, name), parameter), parameter: given})
    assert re.match(rf"{name}: {parameter} is a list( or None)?, as in \[.+\], not ", refused), refused
    assert repr(given) in refused


def test_the_lists_are_found() -> None:
    assert {("delete_topics", "names"), ("create_acls", "acls"), ("describe_log_dirs", "brokers")} < {*LISTS}


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("delete_topics", {"names": "ab"}, "names is a list, as in ['ab'], not 'ab'"),
        ("delete_topics", {"names": ["ab", 5]}, "names[1] is a str, not 5"),
        ("describe_topics", {"names": "ab"}, "names is a list or None, as in ['ab'], not 'ab'"),
        ("describe_log_dirs", {"brokers": 1}, "brokers is a list or None, as in [1], not 1"),
        (
            "find_cut",
            {"partitions": "ab"},
            "partitions is a list, as in [TopicPartition('orders', 0)], not 'ab'",
        ),
        ("find_cut", {"partitions": ["ab"]}, "partitions[0] is a TopicPartition, not 'ab'"),
        ("create_topics", {"topics": ["ab"]}, "topics[0] is a NewTopic, not 'ab'"),
        (
            "create_topics",
            {"topics": NewTopic("ab", 3, 1)},
            f"topics is a list, as in [{NewTopic('ab', 3, 1)!r}], not {NewTopic('ab', 3, 1)!r}",
        ),
        (
            "create_topics",
            {"topics": [NewTopic("ab", "3")]},
            "topics[0].num_partitions is a whole number, not '3'",
        ),  # type: ignore[arg-type]
        (
            "create_topics",
            {"topics": [NewTopic("ab", configs={"retention.ms": b"5"})]},
            "topics[0].configs['retention.ms'] is a str or True or False or a number, not b'5'",
        ),  # type: ignore[dict-item]
        (
            "create_topics",
            {"topics": [NewTopic("ab", assignments={0: 1})]},
            "topics[0].assignments[0] is a list, as in [1], not 1",
        ),  # type: ignore[dict-item]
        (
            "create_topics",
            {"topics": [], "validate_only": "true"},
            "validate_only is True or False, not 'true'",
        ),
        (
            "alter_configs",
            {"resource_type": TOPIC_RESOURCE, "name": "t", "changes": {"cleanup.policy": ["compact"]}},
            "changes['cleanup.policy'] is a str or True or False or a number or None, not ['compact']",
        ),
        (
            "alter_configs",
            {"resource_type": "topic", "name": "t", "changes": {}},
            "resource_type is TOPIC_RESOURCE (2), BROKER_RESOURCE (4), BROKER_LOGGER_RESOURCE (8), "
            "CLIENT_METRICS_RESOURCE (16) or GROUP_RESOURCE (32), not 'topic'",
        ),
        (
            "alter_configs",
            {"resource_type": TOPIC_RESOURCE, "name": "t", "changes": "retention.ms=5"},
            "changes is a mapping of str to str or bool or float or None, not 'retention.ms=5'",
        ),
        (
            "alter_quotas",
            {"entity": {"user": None}, "changes": {"rate": "5"}},
            "changes['rate'] is a number or None, not '5'",
        ),
        (
            "alter_offsets",
            {"group_id": "g", "offsets": {PLACE: "5"}},
            f"offsets[{PLACE!r}] is a whole number, not '5'",
        ),
        (
            "create_mirror",
            {"name": "m", "source": "h", "topics": ".*", "start": 1.5},
            "start is 'earliest' or 'latest' or a datetime or a whole number, not 1.5",
        ),
        (
            "create_mirror",
            {"name": "m", "source": "h", "topics": ".*", "start": True},
            "start is 'earliest' or 'latest' or a datetime or a whole number, not True",
        ),
        ("alter_scram_credentials", {"deletions": [("u",)]}, "deletions[0] has 2 parts, not 1"),
    ],
)
async def test_the_place_is_named(name: str, arguments: dict[str, Any], message: str) -> None:
    assert await refusal(name, arguments) == f"{name}: {message}"


ACL = Acl(2, "orders", 3, "User:ann", "*", 3, 3)
OUT_OF_BOUNDS: list[tuple[str, dict[str, Any], str]] = [
    (
        "create_topics",
        {"topics": [NewTopic("ab", 0)]},
        "topics[0].num_partitions is 1 to 2147483647, or -1 for the cluster's default, not 0",
    ),
    (
        "create_topics",
        {"topics": [NewTopic("ab", 1, 40_000)]},
        "topics[0].replication_factor is 1 to 32767, or -1 for the cluster's default, not 40000",
    ),
    ("create_topics", {"topics": [NewTopic("")]}, "topics[0].name is a text that is not empty, not ''"),
    (
        "create_topics",
        {"topics": [NewTopic("ab", assignments={0: [-1]})]},
        "topics[0].assignments[0][0] is 0 to 2147483647, not -1",
    ),
    (
        "create_topics",
        {"topics": [NewTopic("ab", configs={"min.cleanable.dirty.ratio": float("nan")})]},
        "topics[0].configs['min.cleanable.dirty.ratio'] is a finite number, not nan",
    ),
    ("create_partitions", {"topic": "ab", "total": 0}, "total is 1 to 2147483647, not 0"),
    ("delete_topics", {"names": [""]}, "names[0] is a text that is not empty, not ''"),
    (
        "alter_configs",
        {"resource_type": 3, "name": "t", "changes": {}},
        "resource_type is TOPIC_RESOURCE (2), BROKER_RESOURCE (4), BROKER_LOGGER_RESOURCE (8), "
        "CLIENT_METRICS_RESOURCE (16) or GROUP_RESOURCE (32), not 3",
    ),
    ("alter_offsets", {"group_id": "g", "offsets": {PLACE: -5}}, f"offsets[{PLACE!r}] is 0 or more, not -5"),
    (
        "list_offsets",
        {"timestamps": {PLACE: -7}},
        f"timestamps[{PLACE!r}] is 0 or more, or -1 for LATEST, or -2 for EARLIEST, not -7",
    ),
    (
        "delete_records",
        {"before": {PLACE: -2}},
        f"before[{PLACE!r}] is 0 or more, or -1 for the end of the partition, not -2",
    ),
    (
        "alter_quotas",
        {"entity": {"user": None}, "changes": {"producer_byte_rate": float("inf")}},
        "changes['producer_byte_rate'] is a finite number above 0, not inf",
    ),
    (
        "alter_quotas",
        {"entity": {"user": None}, "changes": {"producer_byte_rate": 10**400}},
        f"changes['producer_byte_rate'] is a finite number above 0, not {str(10**400)[:200]}... (401 characters)",
    ),
    ("unregister_broker", {"broker_id": -5}, "broker_id is 0 to 2147483647, not -5"),
    (
        "alter_partition_reassignments",
        {"replicas": {PLACE: [-1]}},
        f"replicas[{PLACE!r}][0] is 0 to 2147483647, not -1",
    ),
    (
        "find_cut",
        {"partitions": [TopicPartition("orders", 1 << 40)]},
        f"partitions[0].partition is 0 to 2147483647, not {1 << 40}",
    ),
    ("cut_offsets", {"cut": Cut(-2), "partitions": []}, "cut.commit_index is -1 or more, not -2"),
    ("begin_transaction", {"transactional_id": "t", "app_version": -1}, "app_version is 0 or more, not -1"),
    ("begin_transaction", {"transactional_id": "t", "timeout_ms": 0}, "timeout_ms is 1 to 2147483647, not 0"),
    (
        "abort_begun_transaction",
        {"transaction": BegunTransaction("t", -1, 0, 0, "token")},
        "transaction.producer_id is 0 or more, not -1",
    ),
    ("renew_delegation_token", {"hmac": b"x", "period_ms": 0}, "period_ms is 1 or more, not 0"),
    ("expire_delegation_token", {"hmac": b"x", "period_ms": -1}, "period_ms is 0 or more, not -1"),
    ("limit_mirror", {"name": "m", "bandwidth": -1}, "bandwidth is 0 or more, not -1"),
    ("describe_quorum", {"timeout_ms": float("nan")}, "timeout_ms is 0 or more, not nan"),
    ("prune_backup", {"url": "file:///b", "keep": 0}, "keep is 1 or more, not 0"),
    (
        "restore_backup",
        {"url": "file:///b", "renames": {"a": ""}},
        "renames['a'] is a text that is not empty, not ''",
    ),
]
"""Values that no request can carry, or that no cluster accepts."""


@pytest.mark.parametrize(("name", "arguments", "message"), OUT_OF_BOUNDS)
async def test_values_out_of_bounds_are_refused(name: str, arguments: dict[str, Any], message: str) -> None:
    assert await refusal(name, arguments, ValueError) == f"{name}: {message}"


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        (
            "alter_configs",
            {"resource_type": BROKER_RESOURCE, "name": "first", "changes": {}},
            "name is the id of a broker, as in '1', or '' for all brokers, not 'first'",
        ),
        (
            "describe_configs",
            {"resource_type": TOPIC_RESOURCE, "name": ""},
            "name is the name of a topic, not ''",
        ),
        (
            "create_topics",
            {"topics": [NewTopic("ab", 2, assignments={0: [1]})]},
            "num_partitions of topic 'ab' is 2, but its assignments have 1",
        ),
        (
            "create_topics",
            {"topics": [NewTopic("ab", 1, 3, assignments={0: [1]})]},
            "replication_factor of topic 'ab' is 3, but its assignments give partition 0 1",
        ),
        (
            "create_acls",
            {"acls": [ACL._replace(permission=9)]},
            "acls[0].permission is of AclPermission (UNKNOWN, ANY, DENY, ALLOW), not 9",
        ),
        (
            "describe_acls",
            {"matching": AclFilter(pattern_type=-1)},
            "matching.pattern_type is of PatternType (UNKNOWN, ANY, MATCH, LITERAL, PREFIXED), not -1",
        ),
        (
            "verify_backup",
            {"url": "file:/b?c"},
            f"url: the URL of an object store has no ? and no #: {FORMS}",
        ),
        (
            "open_backup",
            {"url": "file:///b", "groups": "("},
            "groups is a regular expression, not '(': missing ), unterminated subpattern at position 0",
        ),
        (
            "prune_backup",
            {"url": "file:///b"},
            "prune_backup: keep or older_than says which cuts are deleted",
        ),
        (
            "restore_backup",
            {"url": "file:///b", "as_of": "yesterday"},
            "as_of is the id of a cut such as '3-17', a datetime or milliseconds since 1970, not 'yesterday'",
        ),
        (
            "restore_backup",
            {"url": "file:///b", "listen": "host:http"},
            "listen is HOST or HOST:PORT, not 'host:http'",
        ),
    ],
)
async def test_arguments_that_do_not_go_together_are_refused(
    name: str, arguments: dict[str, Any], message: str
) -> None:
    assert await refusal(name, arguments, ValueError) == message


def numbers_and_texts() -> Iterator[tuple[str, str, Any]]:
    for name, parameter in parameters():
        hint = get_type_hints(getattr(Admin, name))[parameter]
        kinds = {int: 1 << 70, str: "half \ud800"}
        for kind, wrong in kinds.items():
            if hint in (kind, kind | None):
                yield name, parameter, wrong
            if hint in (Iterable[kind], Iterable[kind] | None):  # type: ignore[valid-type]
                yield name, parameter, [wrong]


@pytest.mark.parametrize(("name", "parameter", "wrong"), list(numbers_and_texts()))
async def test_values_that_no_request_can_carry_are_refused(name: str, parameter: str, wrong: Any) -> None:
    arguments = {**fitting(getattr(Admin, name), parameter), parameter: wrong}
    refused = await refusal(name, arguments, ValueError)
    assert refused.startswith(f"{name}: {parameter}"), refused
    assert "not " in refused


async def test_a_text_of_a_request_has_a_greatest_length() -> None:
    refused = await refusal("pause_mirror", {"name": "m" * 32_768}, ValueError)
    assert refused.startswith("pause_mirror: name is at most 32767 bytes long in UTF-8")
    assert refused.endswith("... (32770 characters)")


async def test_a_long_key_is_shortened_and_its_end_still_tells_a_secret() -> None:
    changes = {"retention.ms" * 1_000: b"5"}
    refused = await refusal("alter_configs", {"resource_type": 4, "name": "", "changes": changes})
    place = f"changes[{repr('retention.ms' * 1_000)[:200]}... (12002 characters)]"
    assert refused == f"alter_configs: {place} is a str or True or False or a number or None, not b'5'"
    changes = {"retention.ms" * 1_000 + ".password": b"open sesame"}
    assert "sesame" not in await refusal(
        "alter_configs", {"resource_type": 4, "name": "", "changes": changes}
    )


async def test_places_of_parts_are_not_formatted_while_all_is_well() -> None:
    class Partition(TopicPartition):
        def __repr__(self) -> str:
            raise AssertionError("there is no error to show the key in")

    with pytest.raises(RuntimeError, match="was not started"):
        await Admin().alter_offsets("g", {Partition("orders", 0): 5})


def test_values_of_configs_become_texts() -> None:
    values = (True, False, 5, 3_600_000.0, 0.5, "x")
    assert [*map(config_text, values)] == ["true", "false", "5", "3600000", "0.5", "x"]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("renew_delegation_token", {"hmac": "open sesame"}),
        (
            "create_mirror",
            {"name": "m", "source": "h", "topics": ".*", "options": {"sasl.password": b"open sesame"}},
        ),
        ("alter_configs", {"resource_type": 4, "name": "", "changes": {"ssl.key.password": b"open sesame"}}),
        ("alter_scram_credentials", {"upserts": UserPassword("u", "open sesame")}),
        ("alter_scram_credentials", {"upserts": [UserPassword("u", b"open sesame")]}),  # type: ignore[arg-type]
        ("abort_hanging", {"hanging": FITTING[HangingTransaction], "cluster_secret": "open sesame"}),
    ],
)
async def test_secrets_are_not_shown(name: str, arguments: dict[str, Any]) -> None:
    assert "sesame" not in await refusal(name, arguments)


async def test_a_number_of_a_partition_that_cannot_be_is_a_value_error() -> None:
    with pytest.raises(ValueError, match=r"^find_cut: partitions\[0\]: the number .* is 0 or more, not -1$"):
        await Admin().find_cut([TopicPartition("orders", -1)])


class Base:
    async def names(self, names: list[str]) -> list[str]:
        return [*names, *names]


@checks_arguments
class Checked(Base):
    """A class whose methods are inherited."""


class Later(Checked):
    """A class of a program's."""

    def anything(self, given: NotThere) -> object:  # type: ignore[name-defined]  # noqa: F821
        return given


async def test_iterators_are_read_once_and_subclasses_are_left_alone() -> None:
    assert await Checked().names(name for name in "ab") == ["a", "b", "a", "b"]  # type: ignore[arg-type]
    assert await Base().names("a") == ["a", "a"], "the base is as it was"  # type: ignore[arg-type]
    assert Later().anything(5) == 5
