"""Comparison of arguments with the annotations of their parameters, before any use of the arguments.

`Admin` checks all its methods this way (`checks_arguments`), and clients check their options (`misfit`). An annotation
may carry bounds (`bounds`). It is resolved at its first use, since modules that it names may be loaded later.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache, wraps
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from .arguments import topic_partition
from .bounds import OF_EACH_KIND, ArgumentBound, NamedNumbers, PartitionNumber
from .foreign_names import is_secret
from .records import TopicPartition

ClassT = TypeVar("ClassT", bound=type[Any])
_SHOWN_MAX = 200
"""The number of characters of a value that an error shows."""

PLAIN_KINDS: Mapping[Any, str] = {
    int: "a whole number",
    float: "a number",
    str: "a str",
    bool: "True or False",
    bytes: "bytes",
    NoneType: "None",
}
_EXAMPLES: Mapping[Any, str] = {
    int: "1",
    str: "'orders'",
    TopicPartition: "TopicPartition('orders', 0)",
}


class _Part(NamedTuple):
    """The place of an element, a key or a member in an argument. Its text is made for an error alone."""

    form: str
    outer: str | _Part
    """The place of the container; a text names the argument itself."""
    name: object = None

    def __str__(self) -> str:
        return self.form.format(self.outer, self.name, _shortened(repr(self.name)))

    @property
    def whole(self) -> str:
        """The text with keys in full length, which may tell that a value is a secret."""
        return self.form.format(_whole(self.outer), self.name, repr(self.name))


_KEY: Final = "a key of {0}"
_MEMBER: Final = "{0}.{1}"
_ELEMENT: Final = "{0}[{2}]"


def alternatives(hint: object) -> tuple[Any, ...]:
    """Return the members of a type hint that is a union, or else the hint alone."""
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def is_plain(value: object, kind: object) -> bool:
    """Return whether a value is an instance of `kind`, a basic type of PLAIN_KINDS. An int is also a float, a bytearray
    is also bytes; True and False are not numbers."""
    if kind is int or kind is float:
        whole = isinstance(value, int) and not isinstance(value, bool)
        return whole or (kind is float and isinstance(value, float))
    if kind is bytes:
        return isinstance(value, bytes | bytearray)
    return isinstance(value, kind)  # type: ignore[arg-type]


def misfit(value: object, hint: object) -> str | None:
    """Return the names of the basic types that `hint` allows, if the value has none of these types; else None. Also
    return None if `hint` allows a type that is not in PLAIN_KINDS."""
    kinds = []
    for alternative in alternatives(hint):
        if alternative not in PLAIN_KINDS or is_plain(value, alternative):
            return None
        kinds.append(PLAIN_KINDS[alternative])
    return " or ".join(kinds)


def checks_arguments(cls: ClassT) -> ClassT:
    """Make the public methods of a class raise TypeError for arguments that do not fit their annotations, and
    ValueError for values outside of bounds.

    The text names the method, the argument, and the place in it. Inherited methods are checked too, so that a new
    method of a base class cannot be forgotten. Subclasses are not checked. An iterator is read into a list, so that a
    method may iterate over it twice.
    """
    for name, method in inspect.getmembers(cls, inspect.isfunction):
        if not name.startswith("_"):
            setattr(cls, name, _checked(method))
    return cls


def _checked(method: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(method)
    if len(signature.parameters) == 1:
        return method

    def fitting(arguments: tuple[Any, ...], options: dict[str, Any]) -> inspect.BoundArguments:
        bound = signature.bind(*arguments, **options)
        hints = _hints(method)
        for name in list(bound.arguments)[1:]:
            given = bound.arguments[name]
            bound.arguments[name] = fitted(f"{method.__name__}: {name}", given, hints[name])
        return bound

    if not inspect.iscoroutinefunction(method):

        @wraps(method)
        def checked(*arguments: Any, **options: Any) -> Any:
            bound = fitting(arguments, options)
            return method(*bound.args, **bound.kwargs)

        return checked

    @wraps(method)
    async def awaited(*arguments: Any, **options: Any) -> Any:
        bound = fitting(arguments, options)
        return await method(*bound.args, **bound.kwargs)

    return awaited


def fitted(where: str | _Part, given: Any, hint: Any) -> Any:
    """Return the value if it fits the hint, with containers as lists, tuples and dicts.

    Raises TypeError that names the place, the text of `where`, and the kinds allowed there. Raises ValueError for a
    value outside of the hint's bounds, and for a partition whose number is negative or whose topic has no name.
    """
    for kind, bounds in _choices(hint):
        if _has_shape(given, kind):
            fitting = _with_parts(where, given, kind)
            for bound in bounds:
                if not bound.allows(fitting):
                    raise ValueError(f"{where} is {bound.words}, not {_shown(where, given)}")
            return fitting
    choices = alternatives(hint)
    wanted = " or ".join(dict.fromkeys(map(_words, choices)))
    lists = [choice for choice in choices if _is_list(choice)]
    example = f", as in {_bracketed(where, given, lists[0])}," if lists else ""
    raise TypeError(f"{where} is {wanted}{example or ','} not {_shown(where, given)}")


@cache
def _choices(hint: Any) -> tuple[tuple[Any, tuple[ArgumentBound, ...]], ...]:
    """Return the type and the bounds of each member of a type hint."""
    return tuple(map(_kind_and_bounds, alternatives(hint)))


def _kind_and_bounds(hint: Any) -> tuple[Any, tuple[ArgumentBound, ...]]:
    """Return the type of an annotation and the bounds of its values: first those of the type, then its own."""
    kind, *own = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    general = OF_EACH_KIND.get(kind)
    return kind, (*(() if general is None else (general,)), *own)


def _shown(where: str | _Part, given: object) -> str:
    """Return a value's text for an error: its beginning if it is long, and its type alone if it may be a secret."""
    if _is_hidden(where, given):
        return f"a {type(given).__name__}"
    return _shortened(repr(given))


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}... ({len(text)} characters)"


def _has_shape(given: Any, hint: Any) -> bool:
    """Return whether a value's outermost kind fits the hint. A hint without information fits every value."""
    if hint in PLAIN_KINDS:
        return is_plain(given, hint)
    if hint is TopicPartition:
        return isinstance(given, tuple)
    origin = get_origin(hint) or hint
    if origin is Literal:
        return type(given) in map(type, get_args(hint))  # the method checks the value
    if origin is Callable or origin is get_origin(Callable[[], None]):
        return callable(given)
    if origin is tuple:
        return isinstance(given, tuple)
    if _is_list(hint):
        several = isinstance(given, Iterable) and not isinstance(given, str | bytes | bytearray | memoryview)
        return several and not hasattr(given, "_fields")  # a named tuple is one value
    return not isinstance(origin, type) or isinstance(given, origin)


def _with_parts(where: str | _Part, given: Any, hint: Any) -> Any:
    """Return the value after its elements, keys or members have been checked; its outermost type fits already."""
    if hint in PLAIN_KINDS:
        return given
    if hint is TopicPartition:
        try:
            partition = topic_partition(given)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{where}: {error}") from None
        fitted(_Part(_MEMBER, where, "topic"), partition.topic, str)
        fitted(_Part(_MEMBER, where, "partition"), partition.partition, PartitionNumber)
        return partition
    origin, inner = get_origin(hint) or hint, get_args(hint)
    if origin is tuple and inner and inner[-1] is not Ellipsis:
        if len(given) != len(inner):
            raise TypeError(f"{where} has {len(inner)} parts, not {len(given)}")
        return tuple(
            fitted(_Part(_ELEMENT, where, index), *pair)
            for index, pair in enumerate(zip(given, inner, strict=True))
        )
    if _is_mapping(hint):
        key_hint, value_hint = inner
        return {
            fitted(_Part(_KEY, where), key, key_hint): fitted(_Part(_ELEMENT, where, key), value, value_hint)
            for key, value in given.items()
        }
    if _is_list(hint):
        return [fitted(_Part(_ELEMENT, where, index), item, inner[0]) for index, item in enumerate(given)]
    for name in _members(origin):
        fitted(_Part(_MEMBER, where, name), getattr(given, name), _hints(origin)[name])
    return given


def _members(kind: Any) -> tuple[str, ...]:
    """Return the names of the fields of a dataclass or a named tuple; none for other types."""
    if isinstance(kind, type) and is_dataclass(kind):
        return tuple(field.name for field in fields(kind))
    return getattr(kind, "_fields", ())


def _is_mapping(hint: Any) -> bool:
    origin = get_origin(hint)
    return isinstance(origin, type) and issubclass(origin, Mapping)


def _is_list(hint: Any) -> bool:
    """Return whether a type hint is for several values of one type, such as a list or an iterable."""
    origin = get_origin(hint)
    if not isinstance(origin, type) or origin is tuple or _is_mapping(hint):
        return False
    return origin in (Iterable, Iterator) or issubclass(origin, Sequence | set | frozenset)


def _words(hint: Any) -> str:
    hint, bounds = _kind_and_bounds(hint)
    for bound in bounds:
        if isinstance(bound, NamedNumbers):
            return bound.words
    origin, inner = get_origin(hint) or hint, get_args(hint)
    if origin in PLAIN_KINDS:
        return PLAIN_KINDS[origin]
    if origin is Literal:
        return " or ".join(map(repr, inner))
    if _is_list(hint):
        return "a list"
    if _is_mapping(hint):
        return f"a mapping of {_name(inner[0])} to {_name(inner[1])}"
    return "a function" if origin is get_origin(Callable[[], None]) else f"a {_name(hint)}"


def _name(hint: Any) -> str:
    names = (
        "None"
        if alternative is NoneType
        else getattr(get_origin(alternative) or alternative, "__name__", str(alternative))
        for alternative in (_kind_and_bounds(choice)[0] for choice in alternatives(hint))
    )
    return " or ".join(names)


def _bracketed(where: str | _Part, given: Any, hint: Any) -> str:
    """Return the list that was probably meant: the value in brackets if the list may hold it, or else an example."""
    (kind,) = get_args(hint)
    try:
        fitted("", given, kind)
    except (TypeError, ValueError):
        choice, _ = _kind_and_bounds(alternatives(kind)[0])
        return f"[{_EXAMPLES.get(choice, f'{_name(choice)}(...)')}]"
    return "[...]" if _is_hidden(where, given) else f"[{given!r}]"


def _is_hidden(where: str | _Part, given: object) -> bool:
    """Return whether a value may be a secret, so that errors do not show it."""
    place = _whole(where)
    return is_secret(place.rpartition(": ")[2]) or "hmac" in place


def _whole(where: str | _Part) -> str:
    return where if isinstance(where, str) else where.whole


@cache
def _hints(owner: Any) -> dict[str, Any]:
    return get_type_hints(owner, include_extras=True)
