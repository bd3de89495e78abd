"""The topics that brokers write themselves, and clients only read."""

from ...protocol.cluster.mirror_table import is_offsets_copy
from ...protocol.features import SHARE_STATE_TOPIC as SHARE_STATE_TOPIC

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
_OWN = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_STATE_TOPIC})


def is_internal(topic: str) -> bool:
    """Return whether a topic of this name is internal."""
    return topic in _OWN or is_offsets_copy(topic)
