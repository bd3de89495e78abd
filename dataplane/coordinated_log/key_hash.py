"""Kafka's hash of a key, which selects the partition of an internal topic that has the key's state."""

from __future__ import annotations

from ...protocol.cluster.cluster_image import ClusterImage


def partition_for(key: str, partitions: int) -> int:
    """Return the partition that has the state of a key, such as a group id, exactly as Kafka computes it.

    Kafka takes the absolute value of Java's `String.hashCode`, a signed 32-bit number over UTF-16 units, and 0 for
    the number whose absolute value does not fit.
    """
    units = memoryview(key.encode("utf-16-be", "surrogatepass"))
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    if value >= 1 << 31:
        value = (1 << 32) - value
    return value % partitions if value < 1 << 31 else 0


def leader_for(key: str, internal_topic: str, image: ClusterImage) -> int:
    """Return the broker that leads the partition with the state of a key; -1 if there is none, or no such topic yet."""
    topic = image.topics.get(internal_topic)
    if topic is None or not topic.partitions:
        return -1
    return topic.partitions[partition_for(key, len(topic.partitions))].leader
