"""Protection of a mirror's topics, which only their source may change."""

from __future__ import annotations

from ...protocol.cluster.cluster_image import ClusterImage, TopicState
from ...protocol.errors import ErrorCode, KafkaError


def check_is_no_copy(image: ClusterImage, topic: TopicState) -> None:
    """Raise KafkaError, POLICY_VIOLATION, for a topic of an unpromoted mirror, or of a mirror that still needs it."""
    mirror = image.mirrors.mirror_of(topic.id)
    if mirror is not None:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"topic {topic.name!r} is the copy of mirror {mirror.name!r}: until that is promoted it follows its source",
        )
    due = image.mirror_offsets.of_copy(topic.id)
    if due is not None:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"topic {topic.name!r} has committed offsets that are being taken over from mirror {due[0]!r}: it goes "
            "afterwards",
        )
