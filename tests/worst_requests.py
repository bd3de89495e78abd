"""Messages in which one array is arbitrarily long, for any request: the worst shapes that a client may send."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ottla.protocol.wire.schema import Field, Message, Request

Path = tuple[Field, ...]
"""Fields that lead from the request to the long array. Other arrays on this path have one element."""


def requests() -> list[type[Request[Any]]]:
    """Return every request class, of the imported modules, whose newest version has arrays."""
    found = {
        cls.schema.api_key: cls for cls in _subclasses(Request) if hasattr(cls, "schema") and cls.api_key >= 0
    }
    return [cls for _, cls in sorted(found.items()) if any(_paths(cls, cls.max_version))]


def widest(request_class: type[Request[Any]], version: int, elements: int) -> Iterator[tuple[Path, Message]]:
    """Yield a request for each of its arrays, in which all elements differ and name nothing that exists."""
    for path in _paths(request_class, version):
        yield path, _message(request_class, version, path, elements, 0)


def _subclasses(cls: type) -> Iterator[Any]:
    for subclass in cls.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)


def _paths(cls: type[Message], version: int) -> Iterator[Path]:
    for field in cls.schema.fields:
        if field.kind != "array" or version not in field.versions:
            continue
        yield (field,)
        if field.element is not None and field.element.struct is not None:
            for path in _paths(field.element.struct, version):
                yield (field, *path)


def _message(cls: type[Message], version: int, path: Path, elements: int, number: int) -> Any:
    message = cls()
    for field in cls.schema.fields:
        if version in field.versions and field.tag is None and field.kind in ("string", "uuid", "int32"):
            setattr(message, field.name, _value(field, number))
    if path:
        element = path[0].element
        assert element is not None
        count = elements if len(path) == 1 else 1
        values = [
            _value(element, each)
            if element.struct is None
            else _message(element.struct, version, path[1:], elements, each)
            for each in range(count)
        ]
        setattr(message, path[0].name, values)
    return message


def _value(field: Field, number: int) -> Any:
    match field.kind:
        case "string":
            return f"unknown-{number}"
        case "uuid":
            return number.to_bytes(16, "big")
        case "bytes" | "records":
            return b""
        case "bool":
            return False
        case "float64":
            return 0.0
        case "int8":
            return number & 0x7F
        case "int16":
            return number & 0x7FFF
    return number
