"""Times in ISO 8601, as typed in the console and on the command line. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

TIME_MS_MAX: Final = 2**63 - 1
"""Largest time that a request can contain."""
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def iso_time_ms(text: str) -> int:
    """Return the milliseconds since 1970 of a time in ISO 8601, which is in UTC if it has no zone.

    A time before 1970 becomes 1970, since negative times have other meanings in Kafka: -1 is the end of a log. Raises
    ValueError.
    """
    moment = datetime.fromisoformat(text)
    since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - EPOCH
    return max(0, since // timedelta(milliseconds=1))
