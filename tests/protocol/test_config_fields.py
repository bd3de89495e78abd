"""Dataclasses of settings: their defaults, bounds and values come from the table of keys, and stand nowhere else."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cache

import pytest

from ottla.protocol.settings.config_fields import (
    declared_key,
    from_settings,
    keys_of_fields,
    ms_of_minutes,
    setting,
    setting_values,
)
from ottla.protocol.settings.config_keys import NODE_KEYS, TOPIC_KEYS, ConfigError
from tests.imports import ROOT, modules, nodes


@dataclass(frozen=True, slots=True)
class Example:
    lag_ms: int = setting("replica.lag.time.max.ms")
    retention_ms: int = setting("offsets.retention.minutes", ms_of_minutes)
    deletes: bool = setting("delete.topic.enable", bool)
    assignors: tuple[str, ...] = setting("group.consumer.assignors", tuple)
    policy: str = setting("cleanup.policy", ",".join)
    derived: int = 3


def test_fields_have_the_defaults_of_the_table() -> None:
    assert Example() == from_settings(Example, {})
    assert Example() == Example(30_000, 604_800_000, True, ("uniform", "range"), "delete", 3)


def test_given_settings_are_parsed_and_converted() -> None:
    given = {
        "replica.lag.time.max.ms": " 5 ",
        "offsets.retention.minutes": "2",
        "delete.topic.enable": "False",
        "group.consumer.assignors": "range",
        "cleanup.policy": "delete, compact",
        "num.partitions": "7",
    }
    assert from_settings(Example, given) == Example(5, 120_000, False, ("range",), "delete,compact")


def test_an_empty_text_is_the_default_unless_a_topic_has_an_empty_list() -> None:
    given = {"replica.lag.time.max.ms": " ", "group.consumer.assignors": "", "cleanup.policy": ""}
    assert from_settings(Example, given) == Example(policy="")


def test_the_bounds_are_those_of_the_table() -> None:
    with pytest.raises(ConfigError, match=r"replica\.lag\.time\.max\.ms: it must be .*, at least 1"):
        from_settings(Example, {"replica.lag.time.max.ms": "0"})


def test_a_field_cannot_have_an_unknown_key_or_another_type() -> None:
    with pytest.raises(KeyError):
        setting("replica.lag.time")
    with pytest.raises(AssertionError, match="has no default"):
        setting("broker.rack", str)
    with pytest.raises(AssertionError, match=r"delete\.topic\.enable is true or false"):
        setting("delete.topic.enable")


def test_no_default_of_a_field_differs_from_the_table() -> None:
    classes = dict.fromkeys(_classes_of_settings())
    assert len(classes) > 15
    for cls in classes:
        keys = keys_of_fields(cls)
        defaults = setting_values(cls, {key.name: str(key.default) for key in keys.values()})
        assert defaults == {each.name: each.default for each in fields(cls) if each.name in keys}, cls


def test_no_reader_repeats_the_default_of_a_key() -> None:
    """Neither as `get(key, default)`, nor as a field or a parameter that has the name of a setting's field."""
    repeated = [
        f"{modules()[module].relative_to(ROOT)}:{line}: {what}"
        for module in _modules()
        for line, what in (*_defaults_beside_keys(module), *_defaults_of_names(module))
    ]
    assert not repeated, "take these from the table:\n" + "\n".join(repeated)


KEYS = NODE_KEYS.keys() | TOPIC_KEYS.keys()
DEFAULT_BY_ROLE = {"process.roles": "controller"}


def _modules() -> list[str]:
    return [
        module
        for module, path in modules().items()
        if path.suffix == ".py" and not module.startswith("ottla.protocol.settings.")
    ]


def _classes_of_settings() -> Iterator[type]:
    for module in _modules():
        for node in nodes(module):
            if isinstance(node, ast.ClassDef) and any(_key_of(each) for each in node.body):
                yield getattr(importlib.import_module(module), node.name)


def _key_of(node: ast.stmt) -> str | None:
    """The key of a dataclass's field."""
    match node:
        case ast.AnnAssign(
            value=ast.Call(func=ast.Name(id="setting"), args=[ast.Constant(value=str(key)), *_])
        ):
            return key
    return None


def _defaults_beside_keys(module: str) -> Iterator[tuple[int, str]]:
    for node in nodes(module):
        match node:
            case ast.Call(args=[ast.Constant(value=str(key)), ast.Constant(value=default), *_]) if (
                key in KEYS and default not in ("", None) and default not in KEYS
            ):
                if DEFAULT_BY_ROLE.get(key) != default:
                    yield node.lineno, ast.unparse(node)


def _defaults_of_names(module: str) -> Iterator[tuple[int, str]]:
    for node in nodes(module):
        match node:
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                pairs = [(name, value)]
            case ast.arguments():
                pairs = [
                    (each.arg, value)
                    for each, value in (
                        *zip(reversed(node.args), reversed(node.defaults), strict=False),
                        *zip(node.kwonlyargs, node.kw_defaults, strict=True),
                    )
                    if value is not None
                ]
            case _:
                continue
        for name, value in pairs:
            if name in _keys_by_name() and _constant(value) in _keys_by_name()[name]:
                yield value.lineno, f"{name} = {ast.unparse(value)}"


@cache
def _keys_by_name() -> dict[str, set[object]]:
    """The default values of all fields that are settings, by the fields' names; small ones prove nothing."""
    found: dict[str, set[object]] = {}
    for cls in _classes_of_settings():
        for each in fields(cls):
            if each.name in keys_of_fields(cls) and isinstance(each.default, int) and each.default > 100:
                found.setdefault(each.name, set()).add(each.default)
    return found


def _constant(node: ast.expr) -> object:
    known = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop)
    if not all(isinstance(each, known) for each in ast.walk(node)):
        return None
    return eval(compile(ast.Expression(node), "default", "eval"))


def test_topics_come_before_brokers() -> None:
    assert declared_key("compression.type") is TOPIC_KEYS["compression.type"]
    assert declared_key("num.partitions") is NODE_KEYS["num.partitions"]
