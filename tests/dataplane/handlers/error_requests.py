"""Requests with elements in all their arrays, generated from their schemas."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from ottla.protocol.wire.schema import Field, Message

_INTEGER_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_UNSIGNED_BITS = {"uint16": 16, "uint32": 32}


def messages(cls: type[Message], version: int) -> st.SearchStrategy[Any]:
    """Return a strategy for messages with the fields that a version has; fields that may be null sometimes are."""
    values = {
        field.name: _values(field, version, null=version in field.nullable and field.kind != "array")
        for field in cls.schema.fields
        if version in field.versions
    }
    return st.builds(cls, **values)


def _values(field: Field, version: int, *, null: bool = False) -> st.SearchStrategy[Any]:
    if null:
        return st.one_of(st.none(), _values(field, version))
    if field.kind == "array":
        assert field.element is not None
        return st.lists(_values(field.element, version), min_size=1, max_size=3)
    if field.kind == "struct":
        assert field.struct is not None
        return messages(field.struct, version)
    if field.kind in _INTEGER_BITS:
        limit = 1 << (_INTEGER_BITS[field.kind] - 1)
        return st.integers(-limit, limit - 1)
    if field.kind in _UNSIGNED_BITS:
        return st.integers(0, (1 << _UNSIGNED_BITS[field.kind]) - 1)
    if field.kind == "uuid":
        return st.binary(min_size=16, max_size=16)
    if field.kind == "string":
        return st.text("abcé", max_size=4)
    if field.kind == "bool":
        return st.booleans()
    if field.kind == "float64":
        return st.floats(allow_nan=False)
    assert field.kind in ("bytes", "records"), field.kind
    return st.binary(max_size=4)
