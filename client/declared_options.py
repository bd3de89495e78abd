"""Declarations of options: each field of an option group has its default, unit and meaning in one place. Pure.

The help of a class lists its options from these declarations, and so does the reference in `docs/reference/`.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from os import PathLike
from types import NoneType, UnionType
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

DefaultT = TypeVar("DefaultT")

_MEANING: Final = "meaning"
_UNIT: Final = "unit"
_UNITS_OF_NAMES: Final = {"_ms": "ms", "_us": "µs"}
_WIDTH: Final = 110
_KINDS: Final[Mapping[Any, str]] = {
    int: "int",
    float: "float",
    str: "str",
    bool: "bool",
    NoneType: "None",
    PathLike: "path",
}


def optional(default: DefaultT, meaning: str, *, unit: str = "", is_secret: bool = False) -> DefaultT:
    """Return the dataclass field of an option with its default and its meaning.

    A name that ends in `_ms` or `_us` has its unit. The repr of the group leaves a secret out.
    """
    declared: Any = field(default=default, repr=not is_secret, metadata={_MEANING: meaning, _UNIT: unit})
    return declared  # type: ignore[no-any-return]


def required(meaning: str) -> Any:
    """Return the dataclass field of an option without a default, which programs have to give."""
    return field(metadata={_MEANING: meaning, _UNIT: ""})


@dataclass(frozen=True, slots=True)
class DeclaredOption:
    """An option of a client, with all that its declaration says."""

    name: str
    annotation: str
    """The annotation in the source."""
    default: object
    """The default; MISSING for a required option."""
    unit: str
    meaning: str
    group: Any
    """The dataclass that declares the option."""

    @property
    def type(self) -> Any:
        """The type, once the modules that it names are loaded."""
        return _hints(self.group)[self.name]

    @property
    def type_text(self) -> str:
        """The type for readers, such as `str or None`."""
        return type_text(self.type)

    @property
    def default_text(self) -> str:
        """The default for readers, as a program would write it; empty for a required option."""
        if self.default is MISSING:
            return ""
        if inspect.isfunction(self.default):
            return self.default.__name__
        if isinstance(self.default, int) and not isinstance(self.default, bool):
            return f"{self.default:_}"
        return repr(self.default).replace("'", '"')


def declared_options(*groups: type[Any]) -> tuple[DeclaredOption, ...]:
    """Return the options of these groups; the first group that declares a name decides."""
    found: dict[str, DeclaredOption] = {}
    for group in groups:
        for each in fields(group):
            unit = each.metadata.get(_UNIT) or _UNITS_OF_NAMES.get(each.name[-3:], "")
            meaning = each.metadata.get(_MEANING, "")
            found.setdefault(
                each.name, DeclaredOption(each.name, str(each.type), each.default, unit, meaning, group)
            )
    return tuple(found.values())


@cache
def _hints(group: Any) -> dict[str, Any]:
    return get_type_hints(group)


def type_text(hint: Any) -> str:
    """Return the text of a type for readers: `str, path or None` instead of `str | os.PathLike[str] | None`."""
    words = list(dict.fromkeys(_words(hint)))
    return " or ".join(part for part in (", ".join(words[:-1]), words[-1]) if part)


def _words(hint: Any) -> Iterator[str]:
    origin, inner = get_origin(hint) or hint, get_args(hint)
    if origin in (Union, UnionType):
        for alternative in inner:
            yield from _words(alternative)
    elif origin is Literal:
        yield from (repr(value).replace("'", '"') for value in inner)
    elif origin in _KINDS:
        yield _KINDS[origin]
    elif origin is get_origin(Callable[[], None]):
        yield "function"
    elif isinstance(origin, type) and issubclass(origin, Mapping):
        yield f"mapping of {type_text(inner[0])} to {type_text(inner[1])}"
    elif isinstance(origin, type) and issubclass(origin, Sequence) and inner:
        yield f"list of {type_text(inner[0])}"
    else:
        yield getattr(origin, "__name__", str(origin))


class HelpText:
    """The docstring of a class with options, made when it is first read: the class's text, then a list of options."""

    def __init__(self, own: str, options: Sequence[DeclaredOption]) -> None:
        self._own = own
        self._options = options

    def __get__(self, instance: object, owner: type[Any]) -> str:
        return f"{inspect.cleandoc(self._own)}\n\n{listed(self._options)}"


def listed(options: Sequence[DeclaredOption]) -> str:
    """Return a list of options, with a headline for each group."""
    lines: list[str] = []
    headline = ""
    for declared in options:
        if headline != (headline := group_title(declared.group)):
            lines += ["", f"{headline}:", ""]
        lines += textwrap.wrap(
            f"- `{declared.name}` ({_facts(declared)}): {declared.meaning}",
            _WIDTH,
            subsequent_indent="  ",
            break_on_hyphens=False,
        )
    return "\n".join(lines).strip()


def group_title(group: type[Any]) -> str:
    """Return the title of an option group: the first sentence of its docstring."""
    return " ".join((group.__doc__ or "").split()).split(". ")[0].rstrip(".")


def _facts(declared: DeclaredOption) -> str:
    if declared.default is MISSING:
        return f"{declared.type_text}, required"
    unit = f" {declared.unit}" if declared.unit and declared.default is not None else ""
    return f"{declared.type_text}, default {declared.default_text}{unit}"
