"""Options that nobody knows, or of the wrong kind, are refused by name when a client is made."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from ..protocol.nearest import nearest

ClassT = TypeVar("ClassT", bound=type[Any])

_KINDS: Mapping[Any, str] = {
    int: "a whole number",
    float: "a number",
    str: "a str",
    bool: "True or False",
    NoneType: "None",
}
"""What is checked, and how it is called; options of other kinds are checked where they are used."""
_MAY_BE_ZERO = frozenset(
    {
        "linger_ms",
        "max_block_ms",
        "retry_backoff_max_ms",
        "busy_poll_us",
        "fetch_max_wait_ms",
        "fetch_min_bytes",
    }
)
_MS_MAX = (1 << 31) - 1
"""More milliseconds do not fit into requests."""


def checks_options(*also: type[Any]) -> Callable[[ClassT], ClassT]:
    """For a class whose keyword arguments are its users' options. `also`: TypedDicts that it takes by `Unpack`.

    Making one then raises TypeError naming an unknown option, with the nearest that there is, or one of the wrong kind,
    and ValueError naming a number that is too small, or milliseconds that are too many.
    """

    def decorate(cls: ClassT) -> ClassT:
        init = cls.__init__
        known: dict[str, Any] = {}

        def learn() -> None:
            """At first use: by then every module has been loaded that hints name."""
            hints = get_type_hints(init)
            for name, parameter in inspect.signature(init).parameters.items():
                if parameter.kind is parameter.KEYWORD_ONLY:
                    known[name] = hints[name]
            for options in also:
                known.update(get_type_hints(options))

        @wraps(init)
        def checked(self: object, *arguments: object, **options: object) -> None:
            if not known:
                learn()
            for name, value in options.items():
                if name not in known:
                    raise TypeError(_unknown(cls.__name__, name, known))
                if kinds := _misfit(value, known[name]):
                    raise TypeError(f"{name} is {kinds}, not {value!r}")
                if value is not None and _is_number(known[name]) and (bounds := _beyond(name, value)):
                    raise ValueError(f"{name} is {bounds}, not {value!r}")
            init(self, *arguments, **options)

        cls.__init__ = checked
        return cls

    return decorate


def _unknown(owner: str, name: str, known: Mapping[str, object]) -> str:
    meant = nearest(name.replace(".", "_"), known)
    return f"{owner} has no option {name!r}; " + (
        f"the nearest is {meant!r}" if meant else f"there are {', '.join(sorted(known))}"
    )


def _is_number(hint: object) -> bool:
    return {*_alternatives(hint)} - {NoneType} in ({int}, {float})


def _beyond(name: str, value: Any) -> str | None:
    """What a number should be, if it is not."""
    least = 0 if name in _MAY_BE_ZERO else 1
    if name.endswith("_ms"):
        return None if least <= value <= _MS_MAX else f"{least} to {_MS_MAX}"
    return None if least <= value else f"{least} or more"


def _misfit(value: object, hint: object) -> str | None:
    """What it should be, if it is not; None also where the hint is of no kind that is checked."""
    kinds = []
    for alternative in _alternatives(hint):
        if alternative not in _KINDS or _is(value, alternative):
            return None
        kinds.append(_KINDS[alternative])
    return " or ".join(kinds)


def _alternatives(hint: object) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _is(value: object, kind: object) -> bool:
    if kind is int or kind is float:
        whole = isinstance(value, int) and not isinstance(value, bool)
        return whole or (kind is float and isinstance(value, float))
    return isinstance(value, kind)  # type: ignore[arg-type]
