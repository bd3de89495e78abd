"""Values of settings on the command line: a time or a size may have a unit, as in `retention.ms=7d`.

Clusters know plain numbers only, so the number is sent. A setting's name says its unit, by Kafka's convention.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from ..failures import CommandFailed, UsageError
from ..terminal.text import note
from .options import key_values
from .selection import bytes_of, milliseconds_of, missing

_WITH_UNIT: Final = re.compile(r"\d+(\.\d+)?\s*[A-Za-z]+(/s)?")
_TIMES: Final[Mapping[str, tuple[str, int, str]]] = {
    ".ms": ("milliseconds", 1, "7d or 604800000"),
    ".seconds": ("seconds", 1_000, "10m or 600"),
    ".minutes": ("minutes", 60_000, "7d or 10080"),
    ".hours": ("hours", 3_600_000, "7d or 168"),
}
"""Endings of names of durations, each with the unit, its milliseconds, and an example."""
_SIZES: Final = (".bytes", ".bytes.per.second", ".buffer.size", ".throttled.rate")


def config_values(pairs: Sequence[str], flag: str) -> dict[str, str]:
    """Return the `key=value` arguments of `flag` as settings, and note each value that is sent as another number.

    Raises UsageError for a malformed argument, and for a unit that does not fit the setting.
    """
    values = {}
    for key, text in key_values(pairs, flag).items():
        values[key] = sent = without_unit(key, text)
        if sent != text:
            note(f"{key}={text} is sent as {sent}")
    return values


def check_keys(keys: Iterable[str], known: Collection[str]) -> None:
    """Raise CommandFailed with the nearest known setting, if a resource does not have one of these settings."""
    for key in keys:
        if key not in known:
            raise CommandFailed(missing(key, known, "setting"))


def without_unit(key: str, text: str) -> str:
    """Return a setting's value as clusters understand it: `604800000` for `retention.ms` and `7d`.

    Other values than a number with a unit are returned as they are. Raises UsageError if the unit does not fit.
    """
    if not _WITH_UNIT.fullmatch(text.strip()):
        return text
    if key.endswith(_SIZES):
        return str(bytes_of(text, key))
    for ending, (unit, unit_ms, example) in _TIMES.items():
        if key.endswith(ending):
            try:
                count, rest = divmod(milliseconds_of(text.strip(), key), unit_ms)
            except UsageError:
                rest = 1
            if rest:
                raise UsageError(f"{key} takes {unit}, such as {example}, not {text!r}")
            return str(count)
    return text
