"""Values by their schemas: Avro, Protobuf and JSON Schema as documents, with the numbers that are stored."""

from __future__ import annotations

import importlib
import io
import json
import random
from base64 import b64encode
from typing import Any

import pytest

from ottla.console.pages.messages.payloads import payload
from ottla.console.schemas.decoding import Decoded
from ottla.console.schemas.registry import AVRO, JSON, PROTOBUF, RegisteredSchema
from tests.console.schema_values import LIST, ORDER, ORDER_BYTES, decoded, file_of, frame, serialized

avro_io = pytest.importorskip("avro.io", reason="avro is missing: pip install avro")
descriptors = pytest.importorskip("google.protobuf.descriptor_pb2", reason="protobuf is missing")
descriptor_pool = pytest.importorskip("google.protobuf.descriptor_pool", reason="protobuf is missing")
json_format = pytest.importorskip("google.protobuf.json_format", reason="protobuf is missing")
message_factory = pytest.importorskip("google.protobuf.message_factory", reason="protobuf is missing")
timestamps = pytest.importorskip("google.protobuf.timestamp_pb2", reason="protobuf is missing")


async def test_an_avro_value_is_what_json_has_for_it() -> None:
    found = await decoded(RegisteredSchema(AVRO, ORDER), ORDER_BYTES)
    assert (found.label, found.trouble) == ("Avro, schema 7: shop.Order", "")
    assert found.document == {
        "id": 7, "note": "hi", "raw": "00ff", "price": "2.56", "at": "1970-01-01T00:00:00+00:00",
    }  # fmt: skip
    assert (await decoded(RegisteredSchema(AVRO, '"bytes"'), b"\x00\xff")).document == "00ff"
    holder = (
        '{"type": "record", "name": "Holder", "fields": [{"name": "order", "type": ["null", "shop.Order"]}]}'
    )
    assert (await decoded(RegisteredSchema(AVRO, holder, (("o", ORDER),)), b"\x00")).document == {
        "order": None
    }


@pytest.mark.parametrize(
    ("text", "body", "reason"),
    [
        (ORDER, ORDER_BYTES[:-1], "expected"),
        (ORDER, ORDER_BYTES + b"x", "1 bytes are left over"),
        (LIST, b"\x02" * 100_000 + b"\0", "nested too deep"),
        ('{"type": "array", "items": "null"}', b"\x80\x80\x80\x01\0", "more than 30,000 values"),
        ('{"type": "record", "name": "A", "fields": [{"name": "a", "type": "A"}]}', b"", "nested too deep"),
        (ORDER, b"\x0e\x00\x00\xc8\x01" + b"\x01" * 101, "a decimal has 1 to 64 bytes, not 100"),
        ("{", b"", "the registry's schema is not understood"),
        ('{"type": "unheard-of"}', b"", "the registry's schema is not understood"),
    ],
)
async def test_avro_that_is_not_as_its_schema_says(text: str, body: bytes, reason: str) -> None:
    found = await decoded(RegisteredSchema(AVRO, text), body)
    assert found.document is None
    assert reason in found.trouble


@pytest.mark.parametrize(
    ("kind", "stored", "shown"),
    [
        ({"type": "long", "logicalType": "timestamp-millis"}, 2**53, 2**53),
        ({"type": "long", "logicalType": "timestamp-micros"}, -(2**62), -(2**62)),
        ({"type": "int", "logicalType": "date"}, 2**31 - 1, 2**31 - 1),
        ({"type": "int", "logicalType": "time-millis"}, 86_400_000, 86_400_000),
        ({"type": "long", "logicalType": "time-micros"}, -1, -1),
        ({"type": "int", "logicalType": "date"}, 1, "1970-01-02"),
    ],
)
async def test_a_time_beyond_the_calendar_is_the_number_that_is_stored(
    kind: dict[str, str], stored: int, shown: object
) -> None:
    fields = [
        {"name": "before", "type": "int"},
        {"name": "at", "type": kind},
        {"name": "after", "type": "string"},
    ]
    schema = RegisteredSchema(AVRO, json.dumps({"type": "record", "name": "R", "fields": fields}))
    source = io.BytesIO()
    encoder = avro_io.BinaryEncoder(source)
    encoder.write_int(1)
    encoder.write_long(stored)
    encoder.write_utf8("z")
    assert await decoded(schema, source.getvalue()) == Decoded(
        "Avro, schema 7: R", {"before": 1, "at": shown, "after": "z"}
    )


@pytest.mark.parametrize(
    ("precision", "scale", "body", "shown"),
    [
        (38, 16, b"\x02\0", "0.0000000000000000"),
        (38, 18, b"\x02\1", "0.000000000000000001"),
        (9, 2, b"\x04\x04\xe2", "12.50"),
        (3, 1, b"\x08\x07\x5b\xcd\x15", "12345678.9"),  # more digits than the schema allows
        (2, 0, b"\x02\x9c", "-100"),
    ],
)
async def test_an_avro_decimal_has_all_its_digits(
    precision: int, scale: int, body: bytes, shown: str
) -> None:
    kind = {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
    schema = RegisteredSchema(
        AVRO, json.dumps({"type": "record", "name": "R", "fields": [{"name": "d", "type": kind}]})
    )
    found = await decoded(schema, body)
    assert found.document == {"d": shown}
    assert payload(frame(7, body), decoded=found).text == f'{{\n  "d": "{shown}"\n}}'


async def test_a_decimal_of_a_million_places_and_a_single_float() -> None:
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 10**9, "scale": 10**9}
    schema = RegisteredSchema(AVRO, json.dumps({"type": "array", "items": kind}))
    found = await decoded(schema, b"\x02\x02\x01\0")
    assert "a decimal has 0 to 1,000 places after its point" in found.trouble
    single = RegisteredSchema(AVRO, '{"type": "array", "items": "float"}')
    assert (await decoded(single, b"\x02\xcd\xcc\xcc\x3d\0")).document == [0.1]


async def test_a_protobuf_value_is_what_json_has_for_it() -> None:
    stamp = "google/protobuf/timestamp.proto"
    schema = RegisteredSchema(PROTOBUF, serialized(file_of("shop", stamp)))
    found = await decoded(schema, b"\x00\x08\x07\x12\x03\x0a\x01a")
    assert found.label == "Protobuf, schema 7: shop.Order"
    assert found.document == {"id": "7", "line": {"sku": "a"}}
    assert (await decoded(schema, b"\x04\x00\x00\x0a\x01b")).document == {"sku": "b"}
    other = descriptors.FileDescriptorProto(package="other", syntax="proto3", dependency=["order.proto"])
    other.message_type.add(name="Other").field.add(
        name="order", number=1, type=11, type_name=".shop.Order", label=1
    )
    imported = RegisteredSchema(PROTOBUF, serialized(other), (("order.proto", schema.text),))
    assert (await decoded(imported, b"\x00\x0a\x02\x08\x05")).document == {"order": {"id": "5"}}


@pytest.mark.parametrize(
    ("text", "body", "reason"),
    [
        (serialized(file_of()), b"\x02\x08", "it is message [4], which its schema does not have"),
        (serialized(file_of()), b"\x00\xff", "DecodeError"),
        (serialized(file_of()), b"", "it ends before it says which message it is"),
        ('syntax = "proto3"; message Order {}', b"\x00", "only as text, not serialized"),
        (
            serialized(file_of("shop", "gone.proto")),
            b"\x00",
            "imports 'gone.proto', which the registry does not",
        ),
        (serialized(file_of("elsewhere")), b"\x00", "the registry's schema is not understood"),
        (b64encode(b"\xff\xff").decode(), b"\x00", "the registry's schema is not understood"),
    ],
)
async def test_protobuf_that_is_not_as_its_schema_says(text: str, body: bytes, reason: str) -> None:
    found = await decoded(RegisteredSchema(PROTOBUF, text), body)
    assert found.document is None
    assert reason in found.trouble


WELL_KNOWN = ("timestamp", "duration", "field_mask", "struct", "wrappers", "any")


def file_of_many_kinds() -> Any:
    """Return a file whose message M has each scalar type as n, repeated as rn, and with presence as on; well-known
    types; maps, and itself.
    """
    imports = [f"google/protobuf/{name}.proto" for name in WELL_KNOWN]
    file = descriptors.FileDescriptorProto(package="k", syntax="proto3", dependency=imports)
    file.enum_type.add(name="E").value.add(name="ZERO", number=0)
    file.enum_type[0].value.add(name="ONE", number=1)
    message = file.message_type.add(name="M")
    of_type = {11: ".k.M", 14: ".k.E"}
    for kind in (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 15, 16, 17, 18):
        named = {"type_name": of_type[kind]} if kind in of_type else {}
        message.field.add(name=f"n{kind}", number=kind, type=kind, label=1, **named)
        message.field.add(name=f"r{kind}", number=100 + kind, type=kind, label=3, **named)
    known = (
        "Timestamp",
        "Duration",
        "FieldMask",
        "Struct",
        "Value",
        "ListValue",
        "Any",
        "Int64Value",
        "FloatValue",
    )
    for place, name in enumerate(known):
        message.field.add(
            name=name, number=200 + place, type=11, label=3, type_name=f".google.protobuf.{name}"
        )
    for number, key_kind in ((300, 9), (301, 8), (302, 3)):
        entry = message.nested_type.add(name=f"Map{number}Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, type=key_kind, label=1)
        entry.field.add(name="value", number=2, type=11, label=1, type_name=".k.M")
        message.field.add(
            name=f"map{number}", number=number, type=11, label=3, type_name=f".k.M.Map{number}Entry"
        )
    return file


def filled(message: Any, chance: random.Random, depth: int = 0) -> Any:
    """Return the message with some of its fields set, at random."""
    for field in message.DESCRIPTOR.fields:
        if chance.random() < 0.7:
            continue
        if field.name.startswith("map"):
            if depth < 2:
                key = {"map300": "a\u00e4", "map301": True, "map302": -7}[field.name]
                filled(getattr(message, field.name)[key], chance, depth + 1)
        elif field.name == "Any":
            getattr(message, field.name).add().Pack(timestamps.Timestamp(seconds=chance.randrange(10**9)))
        elif field.name in ("Timestamp", "Duration"):
            getattr(message, field.name).add(seconds=chance.randrange(10**9), nanos=chance.randrange(10**9))
        elif field.name in ("FieldMask",):
            message.FieldMask.add(paths=["a.b_c"])
        elif field.name == "Struct":
            message.Struct.add().update({"n": 1.5, "l": [None, True, {"s": "t"}]})
        elif field.name in ("Value", "ListValue"):
            getattr(message, field.name).add()
        elif field.name.endswith("Value"):
            getattr(message, field.name).add(value=chance.randrange(100))
        elif field.message_type is not None:
            if depth < 2:
                inner = message.n11 if field.name == "n11" else message.r11.add()
                inner.SetInParent()
                filled(inner, chance, depth + 1)
        else:
            values = {
                1: chance.choice([0.1, -2.5, float("inf"), 1e300]), 2: chance.choice([0.1, 16777216.0, float("-inf")]),
                8: True, 9: "t\u00e4", 12: chance.randbytes(5), 14: chance.choice([1, 9]),
            }  # fmt: skip
            value = values.get(field.type, chance.randrange(1, 2**31))
            if field.name[0] == "r":
                getattr(message, field.name).extend([value, value])
            else:
                setattr(message, field.name, value)
    return message


async def test_protobuf_documents_are_those_of_the_library() -> None:
    file = file_of_many_kinds()
    pool = descriptor_pool.DescriptorPool()
    for name in WELL_KNOWN:
        module = importlib.import_module(f"google.protobuf.{name}_pb2")
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    file.name = "many.proto"
    pool.AddSerializedFile(file.SerializeToString())
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName("k.M"))
    schema = RegisteredSchema(PROTOBUF, serialized(file))
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    for _ in range(40):
        message = filled(kind(), chance)
        wanted = json_format.MessageToDict(
            message,
            preserving_proto_field_name=True,
            always_print_fields_with_no_presence=True,
            descriptor_pool=pool,
        )
        found = await decoded(schema, b"\0" + message.SerializeToString())
        assert (found.trouble, found.document) == ("", wanted), seed


@pytest.mark.parametrize("name", ["timestamp", "duration"])
async def test_a_protobuf_time_beyond_the_calendar_is_its_fields(name: str) -> None:
    file = file_of("shop", f"google/protobuf/{name}.proto")
    file.message_type[0].field.add(
        name="at", number=3, type=11, label=1, type_name=f".google.protobuf.{name.capitalize()}"
    )
    body = b"\x00\x08\x07\x1a\x0a\x08" + b"\xff" * 8 + b"\x7f"
    found = await decoded(RegisteredSchema(PROTOBUF, serialized(file)), body)
    assert found.document == {"id": "7", "at": {"seconds": str(2**63 - 1), "nanos": 0}}


async def test_an_any_of_an_unknown_type_is_its_bytes() -> None:
    file = file_of("shop", "google/protobuf/any.proto")
    file.message_type[0].field.add(name="any", number=3, type=11, label=1, type_name=".google.protobuf.Any")
    found = await decoded(RegisteredSchema(PROTOBUF, serialized(file)), b"\0\x1a\x07\x0a\x02/x\x12\x01z")
    assert found.document == {"id": "0", "any": {"@type": "/x", "value": "eg=="}}


async def test_fields_that_messages_lack_are_counted() -> None:
    """A few bytes of empty messages, each with many fields, would be gigabytes."""
    file = descriptors.FileDescriptorProto(package="k", syntax="proto3")
    message = file.message_type.add(name="M")
    message.field.add(name="again", number=1, type=11, label=3, type_name=".k.M")
    for number in range(2, 2_002):
        message.field.add(name=f"f{number}", number=number, type=3, label=1)
    schema = RegisteredSchema(PROTOBUF, serialized(file))
    found = await decoded(schema, b"\0" + b"\x0a\0" * 1_000)
    assert "more than 100,000 values" in found.trouble
    assert len((await decoded(schema, b"\0" + b"\x0a\0" * 10)).document["again"]) == 10


async def test_json_with_a_schema_is_json() -> None:
    assert await decoded(RegisteredSchema(JSON, "{}"), b'{"a": 1}') == Decoded("JSON, schema 7", {"a": 1})
    assert "it does not match its schema" in (await decoded(RegisteredSchema(JSON, "{}"), b"{")).trouble
    assert "nested too deep" in (await decoded(RegisteredSchema(JSON, "{}"), b"[" * 100_000)).trouble
