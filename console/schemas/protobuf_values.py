"""Decoding of Protobuf values into JSON documents, by file descriptors from the schema registry."""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Callable, Sequence
from typing import Any

from google.protobuf import (
    any_pb2,
    api_pb2,
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    message_factory,
    source_context_pb2,
    struct_pb2,
    timestamp_pb2,
    type_pb2,
    wrappers_pb2,
)

from .framing import Undecodable, message_of
from .protobuf_documents import MessageDocuments

_WELL_KNOWN = {
    module.DESCRIPTOR.name: module.DESCRIPTOR.serialized_pb
    for module in (
        any_pb2,
        api_pb2,
        descriptor_pb2,
        duration_pb2,
        empty_pb2,
        field_mask_pb2,
        source_context_pb2,
        struct_pb2,
        timestamp_pb2,
        type_pb2,
        wrappers_pb2,
    )
}
"""The well-known files, which no registry has to supply."""


def protobuf_reader(text: str, imports: Sequence[tuple[str, str]]) -> Callable[[bytes], tuple[str, Any]]:
    """Return a function that decodes Protobuf values into the message's name and a JSON document.

    `text` is the schema, a file descriptor in base64. `imports` are its imports as pairs (name, text), ordered so that
    each file comes after its own imports. Raises Undecodable, and any error of the library.
    """
    pool = descriptor_pool.DescriptorPool()
    added: set[str] = set()
    for name, imported in imports:
        _add(pool, added, _file_of(imported, name))
    file = _file_of(text, "the schema itself")
    _add(pool, added, file)

    def read(body: bytes) -> tuple[str, Any]:
        indexes, content = message_of(body)
        name = _name_at(file, indexes)
        message = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))()
        message.ParseFromString(content)
        return name, MessageDocuments(pool).document(message)

    return read


def _file_of(text: str, name: str) -> Any:
    try:
        content = b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise Undecodable("the registry returns its schema only as text, not serialized") from None
    file = descriptor_pb2.FileDescriptorProto.FromString(content)
    file.name = name
    return file


def _add(pool: Any, added: set[str], file: Any) -> None:
    """Add a Protobuf file descriptor and its well-known imports to the pool.

    Raises Undecodable for an unknown import.
    """
    for name in file.dependency:
        if name in added:
            continue
        if name not in _WELL_KNOWN:
            raise Undecodable(f"its schema imports {name[:200]!r}, which the registry does not return")
        _add(pool, added, descriptor_pb2.FileDescriptorProto.FromString(_WELL_KNOWN[name]))
    if file.name not in added:
        pool.AddSerializedFile(file.SerializeToString())
        added.add(file.name)


def _name_at(file: Any, indexes: Sequence[int]) -> str:
    names, messages = [file.package] if file.package else [], file.message_type
    for index in indexes:
        if not 0 <= index < len(messages):
            raise Undecodable(f"it is message {indexes}, which its schema does not have")
        names.append(messages[index].name)
        messages = messages[index].nested_type
    return ".".join(names)
