"""Values by a schema registry: framing, Avro, Protobuf, JSON, what a registry may answer, and what is remembered."""

from __future__ import annotations

import asyncio
import importlib
import io
import json
import random
import struct
from base64 import b64encode
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

import pytest

from ottla.client.records import ConsumerRecord
from ottla.console.area import Area, Rendered, View, Visit
from ottla.console.pages.messages.filters import filters_of
from ottla.console.pages.messages.page import MessagesPage, message_row
from ottla.console.pages.messages.payloads import payload
from ottla.console.pages.messages.question import WHERE, question_of
from ottla.console.schemas import decoding, registry
from ottla.console.schemas.decoding import DECODED_BYTES_MAX, Decoded, Decoder
from ottla.console.schemas.framing import Framed, Undecodable, framed, message_of
from ottla.console.schemas.registry import (
    AVRO,
    JSON,
    PROTOBUF,
    NoSchema,
    RegisteredSchema,
    SchemaRegistry,
    registry_address,
)
from tests.console.fakes import HOSTILE, Browser, FakeAdmin, seen
from tests.oauth_issuer import in_thread

avro_io = pytest.importorskip("avro.io", reason="avro is missing: pip install avro")
descriptors = pytest.importorskip("google.protobuf.descriptor_pb2", reason="protobuf is missing")
descriptor_pool = pytest.importorskip("google.protobuf.descriptor_pool", reason="protobuf is missing")
json_format = pytest.importorskip("google.protobuf.json_format", reason="protobuf is missing")
message_factory = pytest.importorskip("google.protobuf.message_factory", reason="protobuf is missing")
timestamps = pytest.importorskip("google.protobuf.timestamp_pb2", reason="protobuf is missing")

ORDER = json.dumps(
    {
        "type": "record",
        "name": "shop.Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "note", "type": ["null", "string"]},
            {"name": "raw", "type": "bytes"},
            {
                "name": "price",
                "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            },
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        ],
    }
)
ORDER_BYTES = b"\x0e\x02\x04hi\x04\x00\xff\x04\x01\x00\x00"  # 7, "hi", 00ff, 256, 0
LIST = '{"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}'


def frame(schema_id: int, body: bytes) -> bytes:
    return struct.pack(">bi", 0, schema_id) + body


def file_of(package: str = "shop", *imports: str) -> Any:
    """Order { int64 id = 1; Line line = 2; message Line { string sku = 1; } }"""
    file = descriptors.FileDescriptorProto(package=package, syntax="proto3", dependency=imports)
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=3, label=1)
    order.field.add(name="line", number=2, type=11, type_name=".shop.Order.Line", label=1)
    order.nested_type.add(name="Line").field.add(name="sku", number=1, type=9, label=1)
    return file


def serialized(file: Any) -> str:
    return b64encode(file.SerializeToString()).decode()


class Shelf:
    """A registry in memory."""

    def __init__(self, **schemas: RegisteredSchema | NoSchema) -> None:
        self.schemas = {int(name[1:]): one for name, one in schemas.items()}
        self.asked: list[int] = []

    async def schema(self, schema_id: int) -> RegisteredSchema:
        self.asked.append(schema_id)
        found = self.schemas.get(schema_id) or NoSchema("the registry does not know it")
        if isinstance(found, NoSchema):
            raise found
        return found


async def decoded(schema: RegisteredSchema, body: bytes) -> Decoded:
    found = await Decoder(Shelf(_7=schema)).decoded(frame(7, body))
    assert found is not None
    return found


# ------------------------------------------------------------ bytes


def test_which_bytes_name_a_schema() -> None:
    assert framed(b"\0\0\0\0\x07abc") == Framed(7, b"abc")
    for other in (None, b"", b"\0\0\0\7", b"{}{}{}", b"\0\0\0\0\0\0\0\x07", b"\0\xff\xff\xff\xff"):
        assert framed(other) is None


def test_which_message_a_value_is() -> None:
    assert message_of(b"\x00rest") == ([0], b"rest")
    assert message_of(b"\x04\x02\x00rest") == ([1, 0], b"rest")
    for broken in (b"", b"\x04\x02", b"\x80\x80\x80\x80\x80\x80", b"\x01", b"\xff\x7f"):
        with pytest.raises(Undecodable):
            message_of(broken)


# ------------------------------------------------------------ values


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
        ('syntax = "proto3"; message Order {}', b"\x00", "only as a text, not serialized"),
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
    """M has each scalar type as n, repeated as rn, and with presence as on; well-known types; maps, and itself."""
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
    """The message with some of its fields set, by chance."""
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
    assert "it is not as its schema says" in (await decoded(RegisteredSchema(JSON, "{}"), b"{")).trouble
    assert "nested too deep" in (await decoded(RegisteredSchema(JSON, "{}"), b"[" * 100_000)).trouble


# ------------------------------------------------------------ pages


def test_a_row_shows_what_was_decoded_and_why_not() -> None:
    record = ConsumerRecord("t", 0, 7, 1_000, frame(8, b"k"), frame(7, ORDER_BYTES))
    value, key = Decoded("Avro, schema 7: shop.Order", {"id": 7}), Decoded("schema 8", trouble="gone")
    row = message_row(record, "auto", "", key=key, value=value)
    assert (row.value.text, row.value.schema) == ('{\n  "id": 7\n}', "Avro, schema 7: shop.Order")
    assert (row.key.kind, row.key.trouble) == ("hex", "schema 8: gone")
    as_hex = message_row(record, "hex", "", value=value).value
    assert (as_hex.kind, as_hex.schema) == ("hex", "")
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    too_deep = message_row(record, "auto", "", value=Decoded("schema 7", deep)).value
    assert (too_deep.kind, too_deep.trouble) == ("hex", "schema 7: it is nested too deep")


def test_what_a_schema_names_is_text_of_strangers() -> None:
    record = ConsumerRecord("t", 0, 7, 1_000, frame(8, b"k"), frame(7, b""))
    value, key = Decoded(HOSTILE, {"id": HOSTILE}), Decoded("schema 8", trouble=HOSTILE)

    async def show(visit: Visit) -> Rendered:
        rows = [message_row(record, "auto", "", key=key, value=value)]
        model = MessagesPage(
            topics=(), question=question_of(visit), where=WHERE, formats=(), rows=rows, undecoded=1,
            first_undecoded=HOSTILE,
        )  # fmt: skip
        return Rendered("Messages", "messages.html", model)

    area = Area(name="messages", title="Messages", place=1, parts=(View(path="/messages", show=show),))
    page = Browser(FakeAdmin(), areas=[area]).enter().read("/messages?topic=t")
    assert "<script>alert" not in page
    assert seen(page).count(HOSTILE) == 3
    assert "1 values were not decoded" in seen(page)


def test_a_json_path_looks_into_what_was_decoded() -> None:
    record = ConsumerRecord("t", 0, 7, 1_000, None, frame(7, ORDER_BYTES))
    (passes,) = filters_of(key="", value="", json="$.id = 7", header="")
    assert passes(record, Decoded("", {"id": 7}))
    assert passes(record, Decoded("", {"id": "7"}))
    assert not passes(record, Decoded("", {"id": 8}))
    assert not passes(record, Decoded("", trouble="gone"))
    assert not passes(record, None)


# ------------------------------------------------------------ what is remembered


async def test_a_schema_is_asked_for_once_and_a_failure_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0
    shelf = Shelf(_7=RegisteredSchema(JSON, "{}"))
    decoder = Decoder(shelf, now=lambda: now_s)
    for _ in range(3):
        assert (await decoder.decoded(frame(7, b"1"))) == Decoded("JSON, schema 7", 1)
        assert (await decoder.decoded(frame(8, b"1"))) == Decoded(
            "schema 8", trouble="the registry does not know it"
        )
    assert shelf.asked == [7, 8]
    assert await decoder.decoded(b"text") is None
    now_s = decoding.FAILED_S
    shelf.schemas[8] = RegisteredSchema(JSON, "{}")
    found = await asyncio.gather(*(decoder.decoded(frame(8, b"2")) for _ in range(3)))
    assert found == [Decoded("JSON, schema 8", 2)] * 3
    assert shelf.asked == [7, 8, 8]


async def test_a_silent_registry_is_left_alone_for_a_while() -> None:
    now_s = 0.0
    shelf = Shelf(_7=NoSchema("nobody there", is_silent=True), _8=RegisteredSchema(JSON, "{}"))
    decoder = Decoder(shelf, now=lambda: now_s)
    for schema_id in (7, 8, 9):
        assert await decoder.decoded(frame(schema_id, b"1")) == Decoded(
            f"schema {schema_id}", trouble="nobody there"
        )
    assert shelf.asked == [7]
    now_s = decoding.SILENT_S
    assert await decoder.decoded(frame(8, b"1")) == Decoded("JSON, schema 8", 1)


async def test_strangers_cannot_have_the_registry_asked_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "ASKED_MAX", 5)
    now_s = 0.0
    shelf = Shelf()
    decoder = Decoder(shelf, now=lambda: now_s)
    found = await decoder.all_decoded([frame(one, b"") for one in range(1, 10)], 60.0)
    assert len(shelf.asked) == 5
    assert found[-1] is not None
    assert "5 schemas were asked for within 60 s already" in found[-1].trouble
    now_s = decoding.ASKED_S + decoding.FAILED_S + 1
    await decoder.decoded(frame(9, b""))
    assert shelf.asked[5:] == [9]


async def test_few_and_small_schemas_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "SCHEMAS_MAX", 2)
    shelf = Shelf(**{f"_{one}": RegisteredSchema(JSON, "{}") for one in range(1, 5)})
    decoder = Decoder(shelf)
    for one in (1, 2, 1, 3, 1, 2):
        await decoder.decoded(frame(one, b"1"))
    assert shelf.asked == [1, 2, 3, 2]
    monkeypatch.setattr(decoding, "SCHEMAS_BYTES_MAX", 3)
    await decoder.decoded(frame(4, b"1"))
    await decoder.decoded(frame(4, b"1"))
    await decoder.decoded(frame(2, b"1"))
    assert shelf.asked[4:] == [4, 2]
    large = await decoder.decoded(frame(1, bytes(DECODED_BYTES_MAX + 1)))
    assert large == Decoded("schema 1", trouble="larger than 256 KiB, so it is not decoded")


async def test_a_page_waits_so_long_for_its_schemas() -> None:
    class Slow(Shelf):
        async def schema(self, schema_id: int) -> RegisteredSchema:
            if schema_id == 7:
                return RegisteredSchema(JSON, "{}")
            return await asyncio.Future()

    found = await Decoder(Slow()).all_decoded([frame(7, b"1"), frame(8, b"1"), None], 0.05)
    assert found == [
        Decoded("JSON, schema 7", 1),
        Decoded("schema 8", trouble="not decoded: the schemas of this page took longer than 0.05 s"),
        None,
    ]


# ------------------------------------------------------------ the registry


@pytest.mark.parametrize(
    "address",
    [
        "registry:8081",
        "ftp://registry",
        "http://",
        "http://me:secret@registry",
        "http://r/?a=secret",
        "http://r:x",
    ],
)
def test_an_address_that_is_none(address: str) -> None:
    with pytest.raises(ValueError, match=r"registry|[Pp]ort") as caught:
        registry_address(address)
    assert "secret" not in str(caught.value)


class Served:
    """Answers by path, over HTTP."""

    def __init__(self) -> None:
        self.answers: dict[str, object] = {}
        self.heads: list[str] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.heads.append(head)
        path = unquote(head.split(" ")[1])
        status, answer = "200 OK", self.answers.get(path)
        if answer is None:
            status, answer = "404 Not Found", {"error_code": 40403}
        elif isinstance(answer, int):
            status, answer = f"{answer} No", {}
        body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()


@pytest.fixture
def served() -> Served:
    return Served()


@pytest.fixture
def address(served: Served, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with in_thread(served) as port:
        yield f"http://127.0.0.1:{port}"


async def test_a_schema_comes_with_all_that_it_refers_to(served: Served, address: str) -> None:
    def reference(name: str) -> dict[str, object]:
        return {"name": name, "subject": f"{name}/value", "version": 2}

    served.answers = {
        "/r/schemas/ids/1": {"schema": "A", "references": [reference("b"), reference("c")]},
        "/r/subjects/b/value/versions/2": {"schema": "B", "references": [reference("c")]},
        "/r/subjects/c/value/versions/2": {"schema": "C"},
        "/r/schemas/ids/2": {"schema": 'syntax = "proto3";', "schemaType": "PROTOBUF"},
        "/r/schemas/ids/2?format=serialized": {"schema": "AAAA", "schemaType": "PROTOBUF"},
    }
    asked = SchemaRegistry(f"{address}/r/", login="me:secret")
    assert await asked.schema(1) == RegisteredSchema(AVRO, "A", (("c", "C"), ("b", "B")))
    assert await asked.schema(2) == RegisteredSchema(PROTOBUF, "AAAA")
    login = b64encode(b"me:secret").decode()
    assert all(f"\r\nAuthorization: Basic {login}\r\n" in head for head in served.heads)


async def test_protobuf_that_is_serialized_already_is_not_asked_for_again(
    served: Served, address: str
) -> None:
    """As Apicurio has it: 500 where it should serialize what is serialized."""
    kept, imported = serialized(file_of("shop", "line.proto")), serialized(file_of("line"))
    references = [{"name": name, "subject": name, "version": 1} for name in ("line.proto", "text.proto")]
    served.answers = {
        "/schemas/ids/5": {"schema": kept, "schemaType": PROTOBUF, "references": references},
        "/schemas/ids/5?format=serialized": 500,
        "/subjects/line.proto/versions/1": {"schema": imported, "schemaType": PROTOBUF},
        "/subjects/line.proto/versions/1?format=serialized": 500,
        "/subjects/text.proto/versions/1": {"schema": 'syntax = "proto3";', "schemaType": PROTOBUF},
        "/subjects/text.proto/versions/1?format=serialized": {"schema": "AAAA", "schemaType": PROTOBUF},
    }
    wanted = (("line.proto", imported), ("text.proto", "AAAA"))
    assert await SchemaRegistry(address).schema(5) == RegisteredSchema(PROTOBUF, kept, wanted)


async def test_a_registry_may_answer_anything(
    served: Served, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "SCHEMA_BYTES_MAX", 10 * 1024)
    itself = {"schema": "A", "references": [{"name": "b", "subject": "b", "version": 1}]}
    served.answers = {
        "/schemas/ids/2": b"<html>",
        "/schemas/ids/3": [],
        "/schemas/ids/4": {"schema": 5},
        "/schemas/ids/5": {"schema": "x", "schemaType": "XML"},
        "/schemas/ids/6": {"schema": "x" * 20_000},
        "/schemas/ids/7": itself,
        "/subjects/b/versions/1": itself,
        "/schemas/ids/8": {"schema": "A", "references": ["b"]},
        "/schemas/ids/9": 500,
        "/schemas/ids/10": 401,
        "/schemas/ids/11": 302,
    }
    asked = SchemaRegistry(address, login="me:secret")
    told = {}
    for schema_id in range(1, 12):
        with pytest.raises(NoSchema) as caught:
            await asked.schema(schema_id)
        told[schema_id] = (str(caught.value), caught.value.is_silent)
    assert told == {
        1: ("the registry does not know it", False),
        2: ("the registry's answer is no JSON object", False),
        3: ("the registry's answer is no JSON object", False),
        4: ("the registry's answer has no schema in it", False),
        5: ("it is of type 'XML', which the console does not know", False),
        6: ("it has more than 10 KiB with all that it refers to", False),
        7: ("it refers to more than 50 others, or to itself", False),
        8: ("the registry's answer does not say what it refers to", False),
        9: ("the registry: it answers with status 500", False),
        10: ("the registry: it answers with status 401", True),
        11: ("the registry: it answers with status 302", False),
    }


async def test_a_registry_that_is_down_or_dawdles(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NoSchema, match=r"the registry: .*[Cc]onnect") as caught:
        await SchemaRegistry("http://127.0.0.1:1", login="me:secret").schema(1)
    assert caught.value.is_silent
    assert "secret" not in str(caught.value)
    monkeypatch.setattr(registry, "SCHEMA_S", 0.0)
    with pytest.raises(NoSchema, match="longer than 0 s") as late:
        await SchemaRegistry(address).schema(1)
    assert late.value.is_silent
