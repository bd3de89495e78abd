"""Times as people type them. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

TIME_MS_MAX: Final = 2**63 - 1
"""What a request can say."""


def iso_time_ms(text: str) -> int:
    """Milliseconds since 1970 of a time as ISO 8601 writes it, UTC without a zone. What lies before 1970 counts as
    1970, as Kafka's negative times mean other things: -1 is the end of a log. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    return max(0, int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000))
