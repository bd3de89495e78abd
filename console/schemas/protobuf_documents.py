"""Protobuf messages as JSON documents, by the rules of ProtoJSON, within a limit on values.

The library's own printer refuses a whole message for one time beyond the years 1 to 9999. It also writes each absent
field, so that a schema with many fields makes gigabytes of a small value.
"""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from google.protobuf import message_factory
from google.protobuf.descriptor import FieldDescriptor

from ..documents.digits import shortest_single
from .framing import Undecodable

VALUES_MAX: Final = 100_000
"""The most values in one message, including its absent fields."""
_PACKAGE: Final = "google.protobuf."
_WRAPPERS: Final = frozenset(
    f"{_PACKAGE}{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_WRITTEN: Final = frozenset(_PACKAGE + name for name in ("Timestamp", "Duration", "FieldMask"))
"""The types that the library writes as text."""
_LONG: Final = frozenset({FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64})


class _Field(NamedTuple):
    """A Protobuf field as a JSON document shows it.

    `is_always_written` is True if the field is written even when a message does not have it.
    """

    name: str
    is_map: bool
    is_repeated: bool
    is_always_written: bool


class MessageDocuments:
    """A converter of Protobuf messages into JSON documents; `pool` has the descriptors of their types."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._fields: dict[str, dict[int, _Field]] = {}
        self._left = 0
        self._of_known: Mapping[str, Callable[[Any], Any]] = {
            f"{_PACKAGE}Any": self._any,
            f"{_PACKAGE}Struct": lambda message: {
                name: self._message(value) for name, value in message.fields.items()
            },
            f"{_PACKAGE}ListValue": lambda message: [self._message(value) for value in message.values],
            f"{_PACKAGE}Value": self._value,
            **dict.fromkeys(_WRAPPERS, self._wrapped),
            **dict.fromkeys(_WRITTEN, self._written),
        }

    def document(self, message: Any) -> Any:
        """Return a Protobuf message as a JSON document. Raises Undecodable beyond VALUES_MAX values."""
        self._left = VALUES_MAX
        return self._message(message)

    def _message(self, message: Any) -> Any:
        self._count(1)
        known = self._of_known.get(message.DESCRIPTOR.full_name)
        return self._regular(message) if known is None else known(message)

    def _regular(self, message: Any) -> dict[str, Any]:
        kinds = self._kinds(message.DESCRIPTOR)
        document: dict[str, Any] = {}
        for field, value in message.ListFields():
            kind = kinds.get(field.number) or _kind(field)
            if kind.is_map:
                of_values = field.message_type.fields_by_name["value"]
                document[kind.name] = {
                    _key(key): self._single(of_values, value[key]) for key in self._counted(value)
                }
            elif kind.is_repeated:
                document[kind.name] = [self._single(field, element) for element in self._counted(value)]
            else:
                document[kind.name] = self._single(field, value)
        self._count(len(kinds))
        for field in message.DESCRIPTOR.fields:
            kind = kinds[field.number]
            if kind.is_always_written and kind.name not in document:
                absent: Any = {} if kind.is_map else [] if kind.is_repeated else None
                document[kind.name] = self._single(field, field.default_value) if absent is None else absent
        return document

    def _single(self, field: Any, value: Any) -> Any:
        match field.cpp_type:
            case FieldDescriptor.CPPTYPE_MESSAGE:
                return self._message(value)
            case FieldDescriptor.CPPTYPE_ENUM:
                if field.enum_type.full_name == f"{_PACKAGE}NullValue":
                    return None
                known = field.enum_type.values_by_number.get(value)
                return value if known is None else known.name
            case FieldDescriptor.CPPTYPE_STRING:
                return b64encode(value).decode() if field.type == FieldDescriptor.TYPE_BYTES else str(value)
            case FieldDescriptor.CPPTYPE_FLOAT | FieldDescriptor.CPPTYPE_DOUBLE:
                if not math.isfinite(value):
                    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
                is_single = field.cpp_type == FieldDescriptor.CPPTYPE_FLOAT
                return shortest_single(value) if is_single else value
            case kind if kind in _LONG:
                return str(value)
        return value

    # ------------------------------------------------------------ types that JSON has in another form

    def _any(self, message: Any) -> dict[str, Any]:
        """Return a google.protobuf.Any as a JSON document.

        If its type has no descriptor, its bytes appear in base64.
        """
        if not message.ListFields():
            return {}
        document: dict[str, Any] = {"@type": message.type_url}
        try:
            descriptor = self._pool.FindMessageTypeByName(message.type_url.rpartition("/")[2])
        except KeyError:
            return document | {"value": b64encode(message.value).decode()}
        inner = message_factory.GetMessageClass(descriptor)()
        inner.ParseFromString(message.value)
        found = self._message(inner)
        if descriptor.full_name in self._of_known:
            return document | {"value": found}
        return {**document, **found}

    def _value(self, message: Any) -> Any:
        kind = message.WhichOneof("kind")
        if kind is None:
            return None
        return self._single(message.DESCRIPTOR.fields_by_name[kind], getattr(message, kind))

    def _wrapped(self, message: Any) -> Any:
        return self._single(message.DESCRIPTOR.fields_by_name["value"], message.value)

    def _written(self, message: Any) -> Any:
        """Return a timestamp, duration or field mask as text.

        Returns its fields if there is no text, as for a time beyond the years 1 to 9999.
        """
        try:
            return message.ToJsonString()
        except (ValueError, OverflowError):
            return self._regular(message)

    # ------------------------------------------------------------ bounds

    def _count(self, values: int) -> None:
        self._left -= values
        if self._left < 0:
            raise Undecodable(f"it has more than {VALUES_MAX:,} values in it, with the fields that it lacks")

    def _counted(self, values: Any) -> Any:
        self._count(len(values))
        return values

    def _kinds(self, descriptor: Any) -> dict[int, _Field]:
        found = self._fields.get(descriptor.full_name)
        if found is None:
            found = self._fields[descriptor.full_name] = {
                field.number: _kind(field) for field in descriptor.fields
            }
        return found


def _kind(field: Any) -> _Field:
    inner = field.message_type
    is_map = inner is not None and inner.has_options and inner.GetOptions().map_entry
    # Newer libraries warn about `label`; older ones do not have `is_repeated`.
    is_repeated = (
        field.is_repeated if hasattr(field, "is_repeated") else field.label == FieldDescriptor.LABEL_REPEATED
    )
    name = f"[{field.full_name}]" if field.is_extension else field.name
    return _Field(name, is_map, is_repeated, not field.has_presence and not field.is_extension)


def _key(key: bool | int | str) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)
