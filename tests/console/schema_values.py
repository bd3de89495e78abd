"""Schemas and values for tests of the console: a registry in memory, and values as serializers frame them."""

from __future__ import annotations

import json
import struct
from base64 import b64encode
from typing import Any

import pytest

from ottla.console.schemas.decoding import Decoded, Decoder
from ottla.console.schemas.registry import NoSchema, RegisteredSchema

descriptors = pytest.importorskip("google.protobuf.descriptor_pb2", reason="protobuf is missing")

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
        self.schemas = {int(name[1:]): schema for name, schema in schemas.items()}
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
