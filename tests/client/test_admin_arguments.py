"""Every method of the admin client refuses arguments of the wrong kind, with an error that states the allowed values.

The admin clients here were never started: a method that went on to send anything would raise RuntimeError.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any, get_type_hints

import pytest

import ottla.sync
from ottla import Admin, NewTopic, TopicPartition
from ottla.client.admin import (
    TOPIC_RESOURCE,
    BegunTransaction,
    Cut,
    HangingTransaction,
    ProducerDescription,
    UserPassword,
)
from ottla.client.kinds import checks_arguments

PLACE = TopicPartition("orders", 0)
FITTING: dict[Any, Any] = {
    str: "orders",
    int: 1,
    bytes: b"x",
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
    hints = get_type_hints(method)
    return {
        one.name: FITTING.get(hints[one.name], {})
        for one in inspect.signature(method).parameters.values()
        if one.name not in ("self", besides) and one.default is one.empty
    }


async def refusal(name: str, arguments: dict[str, Any]) -> str:
    """Return the text of the TypeError that both admin clients raise."""
    with pytest.raises(TypeError) as waiting:
        await getattr(Admin(), name)(**arguments)
    with pytest.raises(TypeError) as blocking:
        getattr(ottla.sync.Admin(), name)(**arguments)
    assert str(waiting.value) == str(blocking.value)
    return str(waiting.value)


@pytest.mark.parametrize(("name", "parameter"), list(parameters()))
async def test_every_parameter_is_checked(name: str, parameter: str) -> None:
    method = getattr(Admin, name)
    told = await refusal(name, {**fitting(method, parameter), parameter: object()})
    assert told.startswith(f"{name}: {parameter} is ")


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
    told = await refusal(name, {**fitting(getattr(Admin, name), parameter), parameter: given})
    assert re.match(rf"{name}: {parameter} is a list( or None)?, as in \[.+\], not ", told), told
    assert repr(given) in told


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
            {"topics": [NewTopic("ab", configs={"retention.ms": 5})]},
            "topics[0].configs['retention.ms'] is a str, not 5",
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
            {"resource_type": TOPIC_RESOURCE, "name": "t", "changes": {"retention.ms": 5}},
            "changes['retention.ms'] is a str or None, not 5",
        ),
        (
            "alter_configs",
            {"resource_type": TOPIC_RESOURCE, "name": "t", "changes": {"preallocate": True}},
            "changes['preallocate'] is a str or None, not True",
        ),
        (
            "alter_configs",
            {"resource_type": TOPIC_RESOURCE, "name": "t", "changes": "retention.ms=5"},
            "changes is a mapping of str to str or None, not 'retention.ms=5'",
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
    assert await Checked().names(one for one in "ab") == ["a", "b", "a", "b"]  # type: ignore[arg-type]
    assert await Base().names("a") == ["a", "a"], "the base is as it was"  # type: ignore[arg-type]
    assert Later().anything(5) == 5
