"""The options of auditing, checked together. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ..declared_options import optional
from .counts import is_bucket_length
from .reports import is_topic

AUDIT_TOPIC = "audit"
"""The default topic that comparisons read. Clients report only if configured to."""
BUCKET_MS = 600_000
"""The default length of a bucket: ten minutes."""
INTERVAL_MS = 30_000
LOG_TIER = "log"
"""The tier name of the records in the topic itself, in comparisons."""
TIER_LENGTH_MAX = 300


@dataclass(frozen=True, slots=True)
class AuditSettings:
    """Settings of an audit; AuditOptions has the meaning of each. Raises ValueError for invalid values."""

    topic: str
    tier: str
    bucket_ms: int = BUCKET_MS
    interval_ms: int = INTERVAL_MS

    def __post_init__(self) -> None:
        if not is_topic(self.topic):
            raise ValueError(
                "audit_topic is the name of a topic (1 to 249 of a-z, A-Z, 0-9, '.', '_', '-') or None, "
                f"not {self.topic!r}"
            )
        if not (0 < len(self.tier) <= TIER_LENGTH_MAX and self.tier.isprintable()) or is_log_tier(self.tier):
            raise ValueError(
                f"audit_tier is a printable text of 1 to {TIER_LENGTH_MAX} characters other than {LOG_TIER!r} and "
                f"'{LOG_TIER}@...', "
                f"not {self.tier!r}"
            )
        if not is_bucket_length(self.bucket_ms):
            raise ValueError(
                "audit_bucket_ms is a day divided by a whole number, and at least a second, as 60000, 600000 or "
                f"3600000, not {self.bucket_ms}"
            )
        if self.interval_ms < 1:
            raise ValueError(f"audit_interval_ms is 1 or more, not {self.interval_ms}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOptions:
    """Options of the audit of records."""

    audit_topic: str | None = optional(
        None,
        "Topic for the counts of records by topic and time bucket, which `ottla audit` compares. None: nothing is "
        "counted.",
    )
    audit_bucket_ms: int = optional(BUCKET_MS, "Length of a time bucket: a day divided by a whole number.")
    audit_interval_ms: int = optional(
        INTERVAL_MS, "Interval between reports. The last report is sent at `stop`."
    )

    def settings(self, tier: str) -> AuditSettings | None:
        """Return the settings of an audit under this tier's name; None without an audit topic. Raises ValueError for
        invalid values."""
        if self.audit_topic is None:
            return None
        return AuditSettings(self.audit_topic, tier, self.audit_bucket_ms, self.audit_interval_ms)


def tier_of_copy(place: str) -> str:
    """Return the name of the tier that counts the same topic's log in another cluster: `log@PLACE`."""
    return f"{LOG_TIER}@{place}"


def is_log_tier(tier: str) -> bool:
    """Return whether a tier is counted in a log, here or in another cluster, and not in reports."""
    return tier == LOG_TIER or tier.startswith(f"{LOG_TIER}@")


def tier_of_readers(tier: str | None, group_id: str | None) -> str:
    """Return the audit tier of a consumer: the given name, or one derived from its group.

    Each group reads everything, so the counts of two groups must not be added up.
    """
    if tier is not None:
        return tier
    return "consumer" if group_id is None else f"consumer:{group_id}"
