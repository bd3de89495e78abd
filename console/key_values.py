"""Lines `key=value` of a form: what they say, what a change sets and takes back, and the command for it. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import TypeVar

from .area import BadQuestion

V = TypeVar("V")


def pairs_of(text: str, rule: str) -> dict[str, str]:
    """Each key once. Raises BadQuestion, which quotes the `rule`: `a setting is key=value`."""
    pairs: dict[str, str] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        key, equals, value = (part.strip() for part in line.partition("="))
        if not equals or not key:
            raise BadQuestion(f"{rule}, not {line[:80]!r}")
        if key in pairs:
            raise BadQuestion(f"{key} stands there twice")
        pairs[key] = value
    return pairs


def altered(before: Mapping[str, V], after: Mapping[str, V]) -> dict[str, V | None]:
    """What has to be set, and with None what has to be taken back."""
    changed: dict[str, V | None] = {key: value for key, value in after.items() if before.get(key) != value}
    return changed | {key: None for key in before if key not in after}


def set_and_unset(command: str, whose: Sequence[str], changes: Mapping[str, str | None]) -> str:
    """The command, or two, that does the same: `ottla config set` and `unset`."""
    given = [f"{key}={value}" for key, value in changes.items() if value is not None]
    gone = [key for key, value in changes.items() if value is None]
    return "\n".join(
        shlex.join(["ottla", command, verb, *whose, *words])
        for verb, words in (("set", given), ("unset", gone))
        if words
    )
