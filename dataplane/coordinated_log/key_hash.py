"""Kafka's hash of a key, which selects the partition of an internal topic that has the key's state."""

from __future__ import annotations


def java_hash(text: str) -> int:
    """Return Java's `String.hashCode` of the text: over UTF-16 units, as a signed 32-bit number."""
    units = memoryview(text.encode("utf-16-be", "surrogatepass"))
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def partition_for(key: str, partitions: int) -> int:
    """Return the partition that has the state of a key, such as a group id, exactly as Kafka computes it."""
    value = java_hash(key)
    return (0 if value == -(1 << 31) else abs(value)) % partitions
