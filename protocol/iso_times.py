"""Times and durations in ISO 8601, as typed in the console, on the command line and in settings. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

TIME_MS_MAX: Final = 2**63 - 1
"""Largest time that a request can contain."""
_DURATION: Final = re.compile(
    r"([-+]?)P(?:([-+]?\d{1,19})D)?(T(?:([-+]?\d{1,19})H)?(?:([-+]?\d{1,19})M)?(?:([-+]?\d{1,19})(?:[.,](\d{0,9}))?S)?)?",
    re.ASCII | re.IGNORECASE,
)
_NS_PER_S: Final = 1_000_000_000
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def iso_time_ms(text: str) -> int:
    """Return the milliseconds since 1970 of a time in ISO 8601, which is in UTC if it has no zone.

    A time before 1970 becomes 1970, since negative times have other meanings in Kafka: -1 is the end of a log. Raises
    ValueError.
    """
    moment = datetime.fromisoformat(text)
    since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - EPOCH
    return max(0, since // timedelta(milliseconds=1))


def iso_duration_ms(text: str) -> int:
    """Return the whole milliseconds of a duration in ISO 8601 of days, hours, minutes and seconds, such as `P1DT2H30M`.

    The duration may be negative, and so may each part, as in Java's `Duration`. Years, months and weeks are refused.
    Raises ValueError, also for 2^63 seconds and more.
    """
    found = _DURATION.fullmatch(text)
    if found is None or not any(found.group(2, 4, 5, 6)) or found[3] in ("T", "t"):
        raise ValueError(f"{text[:100]!r} is no duration: it must be like P1DT2H30M15.5S")
    days, hours, minutes, seconds = (int(part or 0) for part in found.group(2, 4, 5, 6))
    fraction = int((found[7] or "").ljust(9, "0"))
    if (found[6] or "").startswith("-"):
        fraction = -fraction
    ns = (86_400 * days + 3_600 * hours + 60 * minutes + seconds) * _NS_PER_S + fraction
    if not abs(ns) < (TIME_MS_MAX + 1) * _NS_PER_S:
        raise ValueError(f"{text[:100]!r} is too long: a duration has less than 2^63 seconds")
    return (-ns if found[1] == "-" else ns) // (_NS_PER_S // 1_000)
