"""Form fields with keys and values, in rows or in lines `key=value`: parsing, changes, and their shell command. Pure.

A hidden field keeps the values as the form showed them. Only values that differ are changed, because another user may
have set other keys meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from .area import BadQuestion, FormField
from .commands import command

V = TypeVar("V")


def pairs_of(text: str, rule: str) -> dict[str, str]:
    """Parse lines `key=value`; each key may occur once. Raises BadQuestion, which quotes the `rule`: `a setting is
    key=value`."""
    pairs: dict[str, str] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        key, equals, value = (part.strip() for part in line.partition("="))
        if not equals or not key:
            raise BadQuestion(f"{rule}, not {line[:80]!r}")
        if key in pairs:
            raise BadQuestion(f"{key} is given twice")
        pairs[key] = value
    return pairs


def altered(before: Mapping[str, V], after: Mapping[str, V]) -> dict[str, V | None]:
    """Return the changes that turn `before` into `after`: the value of each key to set, and None for a key to
    remove."""
    changed: dict[str, V | None] = {key: value for key, value in after.items() if before.get(key) != value}
    return changed | {key: None for key in before if key not in after}


def lines_fields(name: str, label: str, pairs: Mapping[str, str], hint: str) -> list[FormField]:
    """Return two form fields: a text area with the present lines `key=value`, and a hidden copy.

    The copy shows later which lines the user edited.
    """
    lines = "\n".join(f"{key}={value}" for key, value in pairs.items())
    return [
        FormField(name=name, label=label, kind="lines", value=lines, hint=hint),
        FormField(name=_shown(name), label="", kind="hidden", value=lines),
    ]


def edited(
    form: Mapping[str, str], name: str, parse: Callable[[str], Mapping[str, V]], there: Mapping[str, V]
) -> dict[str, V | None]:
    """Return the changes that the user made to a form with `lines_fields`: the value of each key to set, and None for a
    key to remove. A form without the hidden copy is compared with the present values `there`. Raises BadQuestion."""
    shown = form.get(_shown(name))
    return altered(there if shown is None else parse(shown), parse(form.get(name, "")))


def _shown(name: str) -> str:
    return f"{name} as shown"


# ------------------------------------------------------------ rows


def row_name(prefix: str, key: str) -> str:
    """Return the name of a row's form field. Fields of rows have a common prefix, and the key after a space."""
    return f"{prefix} {key}"


def row_values(form: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Return the values of all rows of a submitted form by key."""
    begin = row_name(prefix, "")
    return {name.removeprefix(begin): text.strip() for name, text in form.items() if name.startswith(begin)}


def shown_rows(prefix: str, pairs: Mapping[str, str]) -> FormField:
    """Return the hidden field with the present values of rows, which shows later which rows the user edited."""
    return FormField(name=_shown_name(prefix), label="", kind="hidden", value=json.dumps(pairs))


def edited_rows(form: Mapping[str, str], prefix: str, there: Mapping[str, str]) -> dict[str, str | None]:
    """Return the changes that the user made to rows: the value of each key to set, and None for a key to remove.

    A form without the hidden field is compared with the present values `there`. Raises BadQuestion.
    """
    name = _shown_name(prefix)
    shown = _parsed(name, form[name]) if name in form else there
    return {
        key: value or None
        for key, value in row_values(form, prefix).items()
        if value != shown.get(key, "").strip()
    }


def _shown_name(prefix: str) -> str:
    """Return the name of the hidden field, which is no name of a row."""
    return f"{prefix}-shown"


def _parsed(name: str, text: str) -> dict[str, str]:
    try:
        pairs = json.loads(text)
    except (ValueError, RecursionError):
        pairs = None
    if not isinstance(pairs, dict) or not all(isinstance(value, str) for value in pairs.values()):
        raise BadQuestion(f"{name!r} is not the text that the console's form has")
    return pairs


# ------------------------------------------------------------ commands


def set_and_unset(words: Sequence[str], names: Sequence[str], changes: Mapping[str, str | None]) -> str:
    """Return one or two shell commands for these changes, such as `ottla config set` and `ottla config unset`.

    The first of `words` stands before the verb, the others after it. A value of None unsets its key. The result is
    empty if a command would be too long.
    """
    given = [f"{key}={value}" for key, value in changes.items() if value is not None]
    gone = [key for key, value in changes.items() if value is None]
    first, *options = words
    lines = [
        command(first, verb, *options, names=[*names, *pairs])
        for verb, pairs in (("set", given), ("unset", gone))
        if pairs
    ]
    return "\n".join(lines) if all(lines) else ""
