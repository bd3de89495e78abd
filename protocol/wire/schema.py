"""Messages as tables of fields. Each field declares its type, versions, default and meaning.

A message is a slotted class whose fields are all optional keyword arguments; `codec` generates its readers
and writers. Example, a message of our own (no API key, flexible from version 0) with a nested struct:

    @data()
    class Listener(Message):
        name: str = string(about="Name of the listener.")
        port: int = uint16(about="TCP port.")

    @data()
    class RegisterBroker(Message):
        broker_id: int = int32(default=-1, about="Id of the broker.")
        incarnation: bytes = uuid(about="Id that the process chooses at each start.")  # 16 raw bytes
        rack: str | None = string(nullable="0+", default=None, about="Rack of the broker; null without racks.")
        listeners: list[Listener] = array(Listener, about="Addresses at which clients reach the broker.")
        log_dirs: list[bytes] = array(uuid, about="Ids of the broker's log directories.")
        zone: str = string("0+", tag=0, about="A tagged field may be added without a new version.")

    encode(RegisterBroker(broker_id=1), 0)   # -> bytes; decode(RegisterBroker, buffer, 0) reads it back

Version ranges are written "3", "0-4", "2+" or "none", as in Kafka's schema files, whose rules hold here. The default of
a number is 0, of a string "", of an array []. Encoding raises for a non-default value of a field that is missing in the
version, unless the field is `ignorable`. The text `about` is for readers of the source, and is not stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar, Final, Generic, NamedTuple, TypeVar, dataclass_transform

HIGHEST_VERSION: Final = 32767
ZERO_UUID: Final = bytes(16)

_UNSET: Final = object()
_M = TypeVar("_M", bound="Message")
ResponseT_co = TypeVar("ResponseT_co", bound="Message", covariant=True)


class VersionRange(NamedTuple):
    """Versions from `first` to `last`, both included; empty if `first > last`."""

    first: int
    last: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last


@cache
def versions_of(text: str) -> VersionRange:
    """Parse a version range: "3", "0-4", "2+" or "none". Results are cached, since thousands of fields share a few
    dozen texts."""
    if text == "none":
        return VersionRange(HIGHEST_VERSION + 1, HIGHEST_VERSION)
    if text.endswith("+"):
        return VersionRange(int(text[:-1]), HIGHEST_VERSION)
    first, _, last = text.partition("-")
    return VersionRange(int(first), int(last or first))


NO_VERSIONS: Final = versions_of("none")


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a message, as its table declares it: type, versions, default.

    `struct` or `element` is the type of a nested struct or of an array's elements. The repr of a message hides `secret`
    fields. An `encodable` array may also be given as an `EncodedArray`.
    """

    kind: str
    versions: VersionRange
    nullable: VersionRange
    tag: int | None
    tagged: VersionRange
    default: Any
    ignorable: bool
    secret: bool = False
    encodable: bool = False
    struct: type[Message] | None = None
    element: Field | None = None
    name: str = ""


class EncodedArray:
    """Nested structs that were encoded before, in place of the elements of an `encodable` array, for messages of one
    version."""

    __slots__ = ("elements",)

    def __init__(self, elements: Sequence[bytes]) -> None:
        self.elements = elements

    def __len__(self) -> int:
        return len(self.elements)


@dataclass(frozen=True, slots=True)
class Schema:
    """Declaration of a message class: its fields, its versions and its API key. `api_key` is -1 for a message that is
    no request or response."""

    fields: tuple[Field, ...]
    versions: VersionRange
    flexible: VersionRange
    api_key: int


class Message:
    """Base of every message and nested struct."""

    __slots__ = ()

    schema: ClassVar[Schema]
    # Copies of the schema's values for quick access. They are no ClassVars, since a nested struct may have fields of
    # these names.
    api_key: int = -1
    min_version: int = 0
    max_version: int = HIGHEST_VERSION
    flexible_from: int = 0

    def __init__(self, **values: Any) -> None:
        # Initializers are generated at first use, since a process makes only a few of the messages that it knows.
        cls = type(self)
        initialize = _initializer(cls.schema.fields)
        cls.__init__ = initialize  # type: ignore[method-assign]
        initialize(self, **values)

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return all(getattr(self, f.name) == getattr(other, f.name) for f in self.schema.fields)

    def __repr__(self) -> str:
        values = ", ".join(
            f"{f.name}={'[hidden]' if f.secret else repr(getattr(self, f.name))}" for f in self.schema.fields
        )
        return f"{type(self).__name__}({values})"


class Request(Message, Generic[ResponseT_co]):
    """Base of requests, each answered by a `ResponseT_co`."""

    __slots__ = ()
    response: ClassVar[type[Message]]


# ---------------------------------------------------------------- fields


def _field(
    kind: str,
    versions: str,
    default: Any,
    tag: int | None,
    tagged: str | None,
    nullable: str | None,
    ignorable: bool,
    **nested: Any,
) -> Any:
    """Return a `Field` for a message's table. The declared return type is Any, so that the annotation beside the field
    determines the attribute's type."""
    tagged_versions = NO_VERSIONS if tag is None else versions_of(tagged or versions)
    nullable_versions = versions_of(nullable) if nullable else NO_VERSIONS
    return Field(
        kind,
        versions_of(versions),
        nullable_versions,
        tag,
        tagged_versions,
        default,
        ignorable,
        **nested,
    )


def _number(kind: str, zero: int | float | bool | bytes) -> Callable[..., Any]:
    def declare(
        versions: str = "0+",
        *,
        default: Any = zero,
        tag: int | None = None,
        tagged: str | None = None,
        ignorable: bool = False,
        about: str = "",
    ) -> Any:
        return _field(kind, versions, default, tag, tagged, None, ignorable)

    declare.__name__ = declare.__qualname__ = kind
    declare.__doc__ = f"A field of Kafka's type {kind}; its default is {zero!r}."
    return declare


int8 = _number("int8", 0)
int16 = _number("int16", 0)
int32 = _number("int32", 0)
int64 = _number("int64", 0)
uint16 = _number("uint16", 0)
uint32 = _number("uint32", 0)
float64 = _number("float64", 0.0)
boolean = _number("bool", False)
uuid = _number("uuid", ZERO_UUID)


def _sized(kind: str, empty: str | bytes | None) -> Callable[..., Any]:
    def declare(
        versions: str = "0+",
        *,
        default: Any = empty,
        nullable: str | None = None,
        tag: int | None = None,
        tagged: str | None = None,
        ignorable: bool = False,
        about: str = "",
        secret: bool = False,
    ) -> Any:
        return _field(kind, versions, default, tag, tagged, nullable, ignorable, secret=secret)

    declare.__name__ = declare.__qualname__ = kind
    declare.__doc__ = (
        f"A field of Kafka's type {kind}, null in `nullable` versions; its default is {empty!r}."
    )
    return declare


string = _sized("string", "")
bytes_ = _sized("bytes", b"")  # decoded into a copy
records_ = _sized("records", None)  # decoded into a view of the buffer


def array(
    of: type[Message] | Callable[..., Any],
    versions: str = "0+",
    *,
    default: Any = _UNSET,
    nullable: str | None = None,
    tag: int | None = None,
    tagged: str | None = None,
    ignorable: bool = False,
    encodable: bool = False,
    about: str = "",
) -> Any:
    """Declare a list of structs (`array(Listener)`) or primitives (`array(int32)`); its default is empty, or None."""
    initial: Any = () if default is _UNSET else default
    if isinstance(of, type):
        element: Field = _field("struct", "0+", None, None, None, None, False, struct=of)
    else:
        element = of()
    return _field(
        "array", versions, initial, tag, tagged, nullable, ignorable, element=element, encodable=encodable
    )


def nested(
    of: type[Message],
    versions: str = "0+",
    *,
    default: Any = _UNSET,
    nullable: str | None = None,
    tag: int | None = None,
    tagged: str | None = None,
    ignorable: bool = False,
    about: str = "",
) -> Any:
    """Declare a nested struct; its default is the struct with all its defaults, or None."""
    initial: Any = () if default is _UNSET else default
    return _field("struct", versions, initial, tag, tagged, nullable, ignorable, struct=of)


# ---------------------------------------------------------------- messages


@dataclass_transform(kw_only_default=True)
def data(versions: str = "0+", *, flexible: str = "0+") -> Callable[[type[_M]], type[_M]]:
    """Declare a nested struct, or a message that is no request or response."""

    def declare(cls: type[_M]) -> type[_M]:
        return _build(cls, versions, flexible)

    return declare


@dataclass_transform(kw_only_default=True)
def request(
    api_key: int, versions: str, *, flexible: str, response: type[Message]
) -> Callable[[type[_M]], type[_M]]:
    """Declare the request of an API; `response` is the class of its answer."""

    def declare(cls: type[_M]) -> type[_M]:
        return _build(cls, versions, flexible, api_key, response=response)

    return declare


@dataclass_transform(kw_only_default=True)
def response(api_key: int, versions: str, *, flexible: str) -> Callable[[type[_M]], type[_M]]:
    """Declare the response of an API."""

    def declare(cls: type[_M]) -> type[_M]:
        return _build(cls, versions, flexible, api_key)

    return declare


def _build(cls: type[_M], versions: str, flexible: str, api_key: int = -1, **attributes: object) -> type[_M]:
    """Rebuild the class with slots in place of the field table."""
    if not issubclass(cls, Message):
        raise TypeError(f"{cls.__name__} must derive from Message")
    rows = tuple(replace(f, name=name) for name, f in cls.__dict__.items() if isinstance(f, Field))
    schema = Schema(rows, versions_of(versions), versions_of(flexible), api_key)
    attributes |= {
        "api_key": api_key,
        "min_version": schema.versions.first,
        "max_version": schema.versions.last,
        "flexible_from": schema.flexible.first,
    }
    slots = tuple(f.name for f in rows)
    left_out = {"__dict__", "__weakref__", *slots}
    namespace = {name: value for name, value in cls.__dict__.items() if name not in left_out}
    namespace |= {name: value for name, value in attributes.items() if name not in slots}
    namespace |= {"__slots__": slots, "schema": schema}
    built: type[_M] = type(cls.__name__, cls.__bases__, namespace)
    return built


def _initializer(table: tuple[Field, ...]) -> Callable[..., None]:
    scope: dict[str, Any] = {"unset": _UNSET}
    parameters, lines = [], []
    for f in table:
        if f.default == () and isinstance(f.default, tuple):
            scope[f"new_{f.name}"] = list if f.struct is None else f.struct
            parameters.append(f"{f.name}=unset")
            lines.append(f"    self.{f.name} = new_{f.name}() if {f.name} is unset else {f.name}\n")
        else:
            scope[f"default_{f.name}"] = f.default
            parameters.append(f"{f.name}=default_{f.name}")
            lines.append(f"    self.{f.name} = {f.name}\n")
    star = "*, " if parameters else ""
    source = f"def __init__(self, {star}{', '.join(parameters)}):\n{''.join(lines) or '    pass'}"
    exec(compile(source, "<message initializer>", "exec"), scope)
    initializer: Callable[..., None] = scope["__init__"]
    return initializer
