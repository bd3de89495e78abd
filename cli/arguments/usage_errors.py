"""Errors of argparse in the words of `ottla`: the option or argument first, then the allowed values. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Final

_ARGUMENT: Final = re.compile(r"argument (?P<names>[^:]+): (?P<why>.*)", re.DOTALL)
_KINDS: Final = {"int": "a whole number", "float": "a number"}
_REQUIRED: Final = "the following arguments are required: "
_ONE_REQUIRED: Final = re.compile(r"one of the arguments (.+) is required")
_INVALID: Final = re.compile(r"invalid (\S+) value: (.*)", re.DOTALL)
_EXCLUDED: Final = re.compile(r"not allowed with argument (.+)")
_EXPECTED: Final = re.compile(r"expected (?:one|at least one|(\d+)) arguments?")
_NO_VALUE: Final = re.compile(r"ignored explicit argument (.*)", re.DOTALL)


def in_our_words(message: str, optional: Collection[str] = ()) -> str:
    """Return an error message of argparse in the words of `ottla`; an unknown message is returned as it is.

    argparse lists the `optional` arguments, too, where a required one is missing.
    """
    if message.startswith(_REQUIRED):
        listing = message.removeprefix(_REQUIRED).split(", ")
        names = [_option(name) for name in listing if name not in optional]
        return f"{listed(names)} {'is' if len(names) == 1 else 'are'} missing"
    if (found := _ONE_REQUIRED.fullmatch(message)) is not None:
        return f"one of {', '.join(map(_option, found[1].split(' ')))} is missing"
    if (found := _ARGUMENT.fullmatch(message)) is None:
        return message
    return _about(_option(found["names"]), found["why"])


def required(name: str) -> str:
    """Return argparse's message about one missing argument."""
    return f"{_REQUIRED}{name}"


def listed(names: Sequence[str]) -> str:
    """Join names in a sentence: `A`, `A and B`, `A, B and C`."""
    return " and ".join((", ".join(names[:-1]), names[-1])) if len(names) > 1 else "".join(names)


def _about(option: str, why: str) -> str:
    if (found := _INVALID.fullmatch(why)) is not None:
        return f"{option} takes {_KINDS.get(found[1], found[1])}, not {found[2]}"
    if (found := _EXCLUDED.fullmatch(why)) is not None:
        return f"{option} and {_option(found[1])} exclude each other"
    if (found := _EXPECTED.fullmatch(why)) is not None:
        return f"{option} needs {f'{found[1]} values' if found[1] else 'a value'}"
    if (found := _NO_VALUE.fullmatch(why)) is not None:
        return f"{option} takes no value, but got {found[1]}"
    return f"{option}: {why}"


def first_long(names: Sequence[str]) -> str:
    """Return the first of an option's names that begins with two dashes, or else its first name."""
    return next((name for name in names if name.startswith("--")), names[0])


def _option(names: str) -> str:
    """Return one name of an option, whose names argparse joins with slashes: `-p/--partitions`."""
    return first_long(names.split("/")) if names.startswith("-") else names
