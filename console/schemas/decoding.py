"""Decoding of record keys and values by the schemas that their bytes name.

A bounded number of schemas is remembered.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from ...protocol.exact_json import parsed
from .framing import Framed, Undecodable, framed
from .registry import AVRO, JSON, PROTOBUF, NoSchema, RegisteredSchema

DECODED_BYTES_MAX: Final = 256 * 1024
SCHEMAS_MAX: Final = 200
SCHEMAS_BYTES_MAX: Final = 4 * 1024 * 1024
"""The most characters of all remembered schemas."""
FAILED_S: Final = 30.0
"""Seconds before an unavailable schema is requested again."""
SILENT_S: Final = 10.0
"""Seconds without requests after the registry did not answer."""
ASKED_MAX: Final = 120
"""The most requests for schemas within ASKED_S, since bytes from any client may name any schema."""
ASKED_S: Final = 60.0
_KINDS = {AVRO: "Avro", PROTOBUF: "Protobuf", JSON: "JSON"}

Reader = Callable[[bytes], tuple[str, Any]]


class Schemas(Protocol):
    """A source of schemas by id, such as a schema registry."""

    async def schema(self, schema_id: int) -> RegisteredSchema:
        """Return the schema of this id. Raises NoSchema if it is unavailable."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """A record's key or value decoded by the schema that `label` names.

    `trouble` is the reason of a failure, and then there is no document. `text` is the undecoded document if the schema
    is a JSON schema.
    """

    label: str
    document: Any = None
    trouble: str = ""
    text: bytes | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class _Known:
    """A remembered schema, or the reason `trouble` why it is unavailable.

    `read` decodes values by the schema. `until_s` is the time after which the schema is requested again. `is_json` is
    True for a JSON schema.
    """

    label: str
    read: Reader | None
    trouble: str
    size: int
    until_s: float
    is_json: bool = False


class Decoder:
    """A decoder of record keys and values that requests each schema once from the registry.

    Schemas are requested one at a time, since pages have few.
    """

    def __init__(self, schemas: Schemas, *, now: Callable[[], float] = time.monotonic) -> None:
        self._schemas, self._now = schemas, now
        self._known: OrderedDict[int, _Known] = OrderedDict()
        self._asked_s: deque[float] = deque()
        self._silent_until_s, self._silence = float("-inf"), ""
        self._turn = asyncio.Lock()

    async def decoded(self, data: bytes | None) -> Decoded | None:
        """Decode a record's key or value.

        Returns None for bytes that name no schema; a failure becomes the `trouble` of the result.
        """
        found = framed(data)
        if found is None:
            return None
        label = f"schema {found.schema_id}"
        if len(found.body) > DECODED_BYTES_MAX:
            return Decoded(label, trouble=f"larger than {DECODED_BYTES_MAX >> 10} KiB, so it is not decoded")
        known = await self._schema(found.schema_id)
        if known.read is None:
            return Decoded(label, trouble=known.trouble)
        await asyncio.sleep(0)  # Let other tasks run between two values.
        return _read(known, known.read, found)

    async def all_decoded(self, values: Sequence[bytes | None], within_s: float) -> list[Decoded | None]:
        """Decode several keys or values within `within_s` seconds; None for bytes that name no schema.

        The rest then gets a `trouble` that says so.
        """
        late = f"not decoded: the schemas of this page took longer than {within_s:g} s"
        named = [framed(value) for value in values]
        found = [
            None if frame is None else Decoded(f"schema {frame.schema_id}", trouble=late) for frame in named
        ]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                for place, value in enumerate(values):
                    found[place] = await self.decoded(value)
        return found

    # ------------------------------------------------------------ schemas

    async def _schema(self, schema_id: int) -> _Known:
        known = self._remembered(schema_id)
        if known is not None:
            return known
        async with self._turn:
            known = self._remembered(schema_id)  # Another task may have requested the schema meanwhile.
            if known is None:
                known = await self._ask(schema_id)
            return known

    def _remembered(self, schema_id: int) -> _Known | None:
        known = self._known.get(schema_id)
        if known is None or self._now() >= known.until_s:
            return None
        self._known.move_to_end(schema_id)
        return known

    async def _ask(self, schema_id: int) -> _Known:
        now_s = self._now()
        if now_s < self._silent_until_s:
            return self._failed(self._silence)
        while self._asked_s and now_s - self._asked_s[0] > ASKED_S:
            self._asked_s.popleft()
        if len(self._asked_s) >= ASKED_MAX:
            return self._failed(
                f"not asked for: {ASKED_MAX} schemas were asked for within {ASKED_S:.0f} s already"
            )
        self._asked_s.append(now_s)
        try:
            schema = await self._schemas.schema(schema_id)
        except NoSchema as error:
            known = self._failed(str(error))
            if error.is_silent:
                self._silent_until_s, self._silence = self._now() + SILENT_S, str(error)
                return known
        else:
            known = await asyncio.to_thread(self._understood, schema_id, schema)
        self._remember(schema_id, known)
        return known

    def _understood(self, schema_id: int, schema: RegisteredSchema) -> _Known:
        try:
            read = _reader_of(schema)
        except Undecodable as error:
            return self._failed(str(error))
        except Exception as error:  # A schema from any client may make a library fail in any way.
            return self._failed(f"the registry's schema is not understood: {_reason(error)}")
        label = f"{_KINDS[schema.kind]}, schema {schema_id}"
        return _Known(label, read, "", schema.size, float("inf"), schema.kind == JSON)

    def _failed(self, why: str) -> _Known:
        return _Known("", None, why, len(why), self._now() + FAILED_S)

    def _remember(self, schema_id: int, known: _Known) -> None:
        self._known[schema_id] = known
        self._known.move_to_end(schema_id)
        while len(self._known) > SCHEMAS_MAX or self._remembered_bytes > SCHEMAS_BYTES_MAX:
            self._known.popitem(last=False)

    @property
    def _remembered_bytes(self) -> int:
        return sum(known.size for known in self._known.values())


def _reader_of(schema: RegisteredSchema) -> Reader:
    """Return the function that decodes values by this schema.

    Libraries are imported with the first schema that needs them.
    """
    if schema.kind == AVRO:
        from .avro_values import avro_reader

        return avro_reader(schema.text, schema.imports)
    if schema.kind == PROTOBUF:
        from .protobuf_values import protobuf_reader

        return protobuf_reader(schema.text, schema.imports)
    return lambda body: ("", parsed(body))


def _read(known: _Known, read: Reader, found: Framed) -> Decoded:
    try:
        name, document = read(found.body)
    except Undecodable as error:
        return Decoded(known.label, trouble=f"it does not match its schema: {error}")
    except Exception as error:  # Bytes from any client may make a library fail in any way.
        return Decoded(known.label, trouble=f"it does not match its schema: {_reason(error)}")
    label = f"{known.label}: {name}" if name else known.label
    return Decoded(label, document, text=found.body if known.is_json else None)


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deep"
    return f"{type(error).__name__}: {error}"[:200]
