"""A bridge between Ottla's messages and those of kio, an independent codec: random messages that both can hold, and
comparison.
"""

from __future__ import annotations

import dataclasses
import importlib
import re
from datetime import datetime, timedelta
from io import BytesIO
from random import Random
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader, entity_writer

from ottla.protocol.wire.schema import Field, Message

INTEGERS = {
    "int8": (-(1 << 7), (1 << 7) - 1),
    "int16": (-(1 << 15), (1 << 15) - 1),
    "int32": (-(1 << 31), (1 << 31) - 1),
    "int64": (-(1 << 63), (1 << 63) - 1),
    "uint16": (0, (1 << 16) - 1),
}
FIRST_TAG_OF_OURS = 10000
KIO_CODES = [int(code) for code in KioErrorCode]


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def kio_class(cls: type[Message], version: int) -> type[Any]:
    """Return kio's class of the same message and version."""
    name = cls.__name__
    kind = "request" if name.endswith("Request") else "response" if name.endswith("Response") else "data"
    api = snake(name.removesuffix("Request").removesuffix("Response"))
    module = importlib.import_module(f"kio.schema.{api}.v{version}.{kind}")
    found: type[Any] = getattr(module, name)
    return found


def kio_field(kio: type[Any], name: str) -> dataclasses.Field[Any]:
    """Return kio's field for one of Ottla's. kio leaves the unit out of the names of durations and times, and keeps a
    name that Kafka 4.4 changed.
    """
    fields = {f.name: f for f in dataclasses.fields(kio)}
    candidates = (
        name,
        name.removesuffix("_ms"),
        name.replace("enable_2pc", "enable2_pc"),
        name.removesuffix("_or_member_epoch"),
    )
    return next(fields[candidate] for candidate in candidates if candidate in fields)


def kio_nested(kio: type[Any], name: str) -> type[Any]:
    """Return the class of kio's nested struct, from its annotation."""
    module = importlib.import_module(kio.__module__)
    annotation = kio_field(kio, name).type
    for word in reversed(re.findall(r"\w+", annotation if isinstance(annotation, str) else repr(annotation))):
        found = getattr(module, word, None)
        if dataclasses.is_dataclass(found):
            assert isinstance(found, type)
            return found
    raise LookupError(f"{kio.__name__}.{name}: {annotation}")


def shared(cls: type[Message], version: int) -> list[Field]:
    """Return the fields of a version that Kafka has, too. Tags from 10000 on belong to Ottla's own fields."""
    return [
        f for f in cls.schema.fields if version in f.versions and (f.tag is None or f.tag < FIRST_TAG_OF_OURS)
    ]


def random_message(rng: Random, cls: type[Message], version: int, kio: type[Any]) -> Message:
    """Return a random message. Fields that are missing in the version or in Kafka keep their defaults."""
    return cls(**{f.name: _value(rng, f, version, kio, f.name) for f in shared(cls, version)})


def _value(rng: Random, field: Field, version: int, kio: type[Any], name: str) -> Any:
    if version in field.nullable and rng.random() < 0.2:
        return None
    if field.kind == "array":
        assert field.element is not None
        size = rng.choice((0, 1, 2, 2, 130)) if field.element.kind != "struct" else rng.randrange(3)
        return [_value(rng, field.element, version, kio, name) for _ in range(size)]
    if field.kind == "struct":
        assert field.struct is not None
        return random_message(rng, field.struct, version, kio_nested(kio, name))
    return _primitive(rng, field.kind, kio_field(kio, name).metadata.get("kafka_type", ""))


def _primitive(rng: Random, kind: str, kio_type: str) -> Any:
    if kio_type == "error_code":
        return rng.choice(KIO_CODES)
    if kio_type == "datetime_i64":
        return rng.randrange(4_000_000_000_000)
    if kio_type.startswith("timedelta"):
        return rng.randrange(1 << 31)  # kio's durations cannot hold every int64
    if kind in INTEGERS:
        lowest, highest = INTEGERS[kind]
        return rng.choice((lowest, highest, 0, 1, -1 if lowest else 2, rng.randint(lowest, highest)))
    if kind == "bool":
        return rng.random() < 0.5
    if kind == "float64":
        return rng.random()
    if kind == "uuid":
        return rng.randbytes(16)
    if kind == "string":
        return rng.choice(("", "topic", "\u00e9\u4e2d\U0001f600", "x" * rng.randrange(300)))
    return rng.randbytes(rng.choice((0, 1, 20, 200)))


def same(field_value: Any, kio_value: Any, version: int) -> bool:
    """Return whether a value of Ottla's and one of kio's have the same meaning."""
    if isinstance(field_value, Message):
        kio = type(kio_value)
        return all(
            same(getattr(field_value, f.name), getattr(kio_value, kio_field(kio, f.name).name), version)
            for f in shared(type(field_value), version)
        )
    if isinstance(field_value, list):
        return len(field_value) == len(kio_value) and all(
            same(part, kio_part, version) for part, kio_part in zip(field_value, kio_value, strict=True)
        )
    if isinstance(kio_value, UUID):
        return bool(field_value == kio_value.bytes)
    if isinstance(kio_value, timedelta):
        return bool(field_value == round(kio_value.total_seconds() * 1000))
    if isinstance(kio_value, datetime):
        return bool(field_value == round(kio_value.timestamp() * 1000))
    if kio_value is None and field_value == bytes(16):
        return True
    if isinstance(kio_value, tuple):
        return bool(field_value == b"".join(kio_value))
    return bool(field_value == kio_value)


def kio_decode(kio: type[Any], data: bytes) -> Any:
    found = entity_reader(kio)(data, 0)
    return found[0] if isinstance(found, tuple) else found


def kio_encode(entity: Any) -> bytes:
    buffer = BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()
