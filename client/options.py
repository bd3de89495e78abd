"""Options of clients: frozen groups of values, made from keyword arguments that are checked by name.

A client takes its options as keyword arguments. Each option belongs to a group, a frozen dataclass with names, types
and defaults. An option that is in no group, or whose value has another type, is refused by name when the client is
made.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, fields
from functools import cache, wraps
from types import NoneType
from typing import Any, TypeVar

from ..protocol.nearest import nearest
from .declared_options import DeclaredOption, HelpText
from .foreign_names import JAVA, LIBRDKAFKA, is_secret
from .kinds import alternatives, misfit

ClassT = TypeVar("ClassT", bound=type[Any])
GroupT = TypeVar("GroupT")

_MAY_BE_ZERO = frozenset(
    {
        "linger_ms",
        "max_block_ms",
        "retry_backoff_max_ms",
        "busy_poll_us",
        "fetch_max_wait_ms",
        "fetch_min_bytes",
        "drain_s",
    }
)
_MS_MAX = (1 << 31) - 1
"""The greatest number of milliseconds that fits into requests."""


def group_of(group: type[GroupT], given: Mapping[str, Any]) -> GroupT:
    """Return one group's values: the given ones, and defaults for the rest.

    Raises TypeError and ValueError for values that the group refuses.
    """
    return group(**{name: given[name] for name in names_of(group) if name in given})


def names_of(*groups: type[Any]) -> tuple[str, ...]:
    """Return the names of the options in these groups."""
    return tuple(option.name for group in groups for option in fields(group))


class OptionsSignature(inspect.Signature):
    """A signature that has each option as a parameter, for editors and notebooks, and a short text for help.

    The text has `**options` in place of the options with defaults: the docstring lists them, with their meanings.
    """

    __slots__ = ()

    def __str__(self) -> str:
        shown = [
            parameter
            for parameter in self.parameters.values()
            if parameter.kind is not parameter.KEYWORD_ONLY or parameter.default is parameter.empty
        ]
        options = inspect.Parameter("options", inspect.Parameter.VAR_KEYWORD)
        return str(inspect.Signature([*shown, options], return_annotation=self.return_annotation))

    def format(self, **_: Any) -> str:
        """Return the text of the signature, which `help` asks for from Python 3.13 on."""
        return str(self)


def shows_options(*options: DeclaredOption) -> Callable[[ClassT], ClassT]:
    """Return a decorator for a class that takes these options; its signature and its docstring then list them."""

    def decorate(cls: ClassT) -> ClassT:
        own = inspect.signature(cls.__init__)
        before = [
            parameter for parameter in own.parameters.values() if parameter.kind is not parameter.VAR_KEYWORD
        ]
        added = [
            inspect.Parameter(
                option.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if option.default is MISSING else option.default,
                annotation=option.annotation,
            )
            for option in options
        ]
        cls.__init__.__signature__ = OptionsSignature(
            [*before, *added], return_annotation=own.return_annotation
        )
        if cls.__doc__ is not None:  # Python leaves docstrings out with -OO.
            cls.__doc__ = HelpText(cls.__doc__, options)  # type: ignore[assignment]
        return cls

    return decorate


def checks_options(*options: DeclaredOption) -> Callable[[ClassT], ClassT]:
    """Return a decorator for a class whose keyword arguments are these options.

    The decorated class raises TypeError for an unknown option, naming the nearest known one, for a value of the wrong
    kind, and for a required option that is missing. It raises ValueError for a number that is too small, and for too
    many milliseconds.
    """

    def decorate(cls: ClassT) -> ClassT:
        init = cls.__init__
        needed = [option.name for option in options if option.default is MISSING]

        @cache  # Hints are resolved at first use: by then all modules that they name are loaded.
        def types() -> dict[str, Any]:
            return {option.name: option.type for option in options}

        @wraps(init)
        def checked(self: object, *arguments: object, **given: object) -> None:
            known = types()
            for name, value in given.items():
                if name not in known:
                    raise TypeError(_unknown(cls.__name__, name, known))
                if kinds := misfit(value, known[name]):
                    shown = f"a {type(value).__name__}" if is_secret(name) else repr(value)
                    raise TypeError(f"{name} is {kinds}, not {shown}")
                if value is not None and _is_number(known[name]) and (bounds := _beyond(name, value)):
                    raise ValueError(f"{name} is {bounds}, not {value!r}")
            for name in needed:
                if name not in given:
                    raise TypeError(f"{cls.__name__} needs the option {name!r}")
            init(self, *arguments, **given)

        cls.__init__ = checked
        return shows_options(*options)(cls)

    return decorate


def names_nearest_field(cls: ClassT) -> ClassT:
    """Decorate a dataclass, so that its TypeError for an unknown keyword argument names the nearest field."""
    init = cls.__init__
    known = names_of(cls)

    @wraps(init)
    def checked(self: object, *arguments: object, **given: object) -> None:
        for name in given:
            if name not in known:
                raise TypeError(_unknown(cls.__name__, name, known))
        init(self, *arguments, **given)

    cls.__init__ = checked
    return cls


def _unknown(owner: str, name: str, known: Collection[str]) -> str:
    elsewhere = LIBRDKAFKA.get(name) or JAVA.get(name)
    meant = elsewhere if elsewhere in known else nearest(name.replace(".", "_"), known)
    return f"{owner} has no option {name!r}; " + (
        f"the nearest is {meant!r}" if meant else f"there are {', '.join(sorted(known))}"
    )


def _is_number(hint: object) -> bool:
    return {*alternatives(hint)} - {NoneType} in ({int}, {float})


def _beyond(name: str, value: Any) -> str | None:
    """Return the allowed range of a number that is outside it, else None."""
    least = 0 if name in _MAY_BE_ZERO else 1
    if name.endswith("_s"):
        enough = value >= 0 if least == 0 else value > 0  # False for NaN, too
        return None if enough and value <= _MS_MAX / 1000 else f"{'0 or more' if least == 0 else 'above 0'}"
    if name.endswith("_ms"):
        return None if least <= value <= _MS_MAX else f"{least} to {_MS_MAX}"
    return None if least <= value else f"{least} or more"
