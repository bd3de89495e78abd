"""Requests to a schema registry, by Confluent's API."""

from __future__ import annotations

import asyncio
import json
import ssl
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, urlsplit

from ...network.http_get import DocumentUnavailable, get_document

REQUEST_S: Final = 3.0
SCHEMA_S: Final = 6.0
"""Seconds for a schema and all that it refers to."""
IMPORTS_MAX: Final = 50
SCHEMA_BYTES_MAX: Final = 512 * 1024
"""The most bytes of a schema together with all that it refers to."""
AVRO, PROTOBUF, JSON = "AVRO", "PROTOBUF", "JSON"
_NOT_FOUND: Final = 404


class NoSchema(Exception):
    """A schema of the registry is unavailable; the message is the reason.

    `is_silent` is True if the registry gave no usable answer, so that other schemas are unavailable, too.
    """

    def __init__(self, reason: str, *, is_silent: bool = False) -> None:
        super().__init__(reason)
        self.is_silent = is_silent


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema of the registry.

    `kind` is AVRO, PROTOBUF or JSON. `imports` are the schemas that it refers to, by name and text, each after those
    that it needs itself.
    """

    kind: str
    text: str
    imports: tuple[tuple[str, str], ...] = ()

    @property
    def size(self) -> int:
        """The number of characters of the schema and its imports."""
        return len(self.text) + sum(len(text) for _, text in self.imports)


@dataclass(slots=True)
class _Imports:
    """The imports of a schema that were read so far, with a limit on their number and bytes."""

    texts: dict[str, str] = field(default_factory=dict)
    _asked: int = -1  # The schema itself does not count as an import.
    _size: int = 0

    def take(self, text: str) -> None:
        """Count a schema's text.

        Raises NoSchema beyond the limits, which schemas with circular references reach, too.
        """
        self._asked += 1
        self._size += len(text)
        if self._size > SCHEMA_BYTES_MAX:
            raise NoSchema(f"it has more than {SCHEMA_BYTES_MAX >> 10} KiB with all that it refers to")
        if self._asked > IMPORTS_MAX:
            raise NoSchema(f"it refers to more than {IMPORTS_MAX} others, or to itself")


class SchemaRegistry:
    """A client of a schema registry over HTTP. `login` is `USER:PASSWORD`, which no error message contains."""

    def __init__(self, address: str, *, login: str | None = None, tls: ssl.SSLContext | None = None) -> None:
        """Keep the registry's URL, login and TLS context. Raises ValueError if the URL is invalid."""
        self._address = registry_address(address)
        self._authorization = None if login is None else f"Basic {b64encode(login.encode()).decode()}"
        self._tls = tls

    async def schema(self, schema_id: int) -> RegisteredSchema:
        """Return the schema of this id, with all schemas that it refers to. Raises NoSchema."""
        try:
            async with asyncio.timeout(SCHEMA_S):
                return await self._whole(schema_id)
        except TimeoutError:
            raise NoSchema(f"the registry took longer than {SCHEMA_S:.0f} s", is_silent=True) from None

    async def _whole(self, schema_id: int) -> RegisteredSchema:
        fields = await self._asked(f"/schemas/ids/{schema_id}")
        kind = fields.get("schemaType") or AVRO
        if kind not in (AVRO, PROTOBUF, JSON):
            raise NoSchema(f"it is of type {str(kind)[:40]!r}, which the console does not know")
        if kind == PROTOBUF:
            fields = await self._serialized(f"/schemas/ids/{schema_id}", fields)
        text, found = _text(fields), _Imports()
        found.take(text)
        if kind != JSON:
            await self._import(fields, kind, found)
        return RegisteredSchema(kind, text, tuple(found.texts.items()))

    async def _serialized(self, path: str, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the registry's answer for a Protobuf schema as a file descriptor; `fields` is the answer so far.

        Confluent's own registry keeps texts, and serializes on request. Other registries keep what clients gave them.
        Clients in Python and .NET give them a serialized schema, and Apicurio fails to serialize it once more.
        """
        return fields if is_serialized(_text(fields)) else await self._asked(f"{path}?format=serialized")

    async def _import(self, fields: Mapping[str, Any], kind: str, found: _Imports) -> None:
        references = fields.get("references") or []
        if not isinstance(references, list) or not all(
            isinstance(reference, dict) for reference in references
        ):
            raise NoSchema("the registry's answer does not say what it refers to")
        for reference in references:
            name, subject, version = reference.get("name"), reference.get("subject"), reference.get("version")
            if not isinstance(name, str) or not isinstance(subject, str) or not isinstance(version, int):
                raise NoSchema("the registry's answer does not say what it refers to")
            if name in found.texts:
                continue
            path = f"/subjects/{quote(subject, safe='')}/versions/{version}"
            imported = await self._asked(path)
            if kind == PROTOBUF:
                imported = await self._serialized(path, imported)
            text = _text(imported)
            found.take(text)
            await self._import(imported, kind, found)
            found.texts[name] = text

    async def _asked(self, path: str) -> Mapping[str, Any]:
        try:
            content = await get_document(
                self._address + path, self._tls, authorization=self._authorization, timeout_s=REQUEST_S
            )
        except DocumentUnavailable as error:
            if error.status == _NOT_FOUND:
                raise NoSchema("the registry does not know it") from None
            # Other statuses concern this schema alone: Karapace fails for some schemas.
            is_silent = error.status is None or error.status in (401, 403, 429)
            raise NoSchema(f"the registry: {error}", is_silent=is_silent) from None
        try:
            fields = json.loads(content)
        except (ValueError, RecursionError):
            fields = None
        if not isinstance(fields, dict):
            raise NoSchema("the registry's answer is no JSON object")
        return fields


def registry_address(text: str) -> str:
    """Check the URL of a schema registry, and return it without a slash at its end.

    Raises ValueError, whose text contains no password.
    """
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError("a schema registry is http://HOST:PORT or https://HOST:PORT, perhaps with a path")
    if parts.username is not None or parts.password is not None:
        raise ValueError("the address of a schema registry has no user and no password: a file has the login")
    if not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError("the address of a schema registry is in ASCII, without spaces")
    _ = parts.port  # Raises ValueError for an invalid port.
    return text.rstrip("/")


def is_serialized(text: str) -> bool:
    """Return whether a Protobuf schema is a file descriptor in base64. A `.proto` text has spaces in it."""
    try:
        return len(b64decode(text, validate=True)) > 0
    except ValueError:
        return False


def _text(fields: Mapping[str, Any]) -> str:
    text = fields.get("schema")
    if not isinstance(text, str):
        raise NoSchema("the registry's answer has no schema in it")
    return text
