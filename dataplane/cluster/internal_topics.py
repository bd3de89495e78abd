"""The topics that brokers write themselves, and clients only read."""

from ...protocol.cluster.mirror_table import is_offsets_copy

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"


def is_internal(topic: str) -> bool:
    """Return whether a topic of this name is internal."""
    return topic in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC) or is_offsets_copy(topic)
