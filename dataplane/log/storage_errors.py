"""Disk failures as the Kafka error that takes a partition offline."""

from __future__ import annotations

from pathlib import Path

from ...protocol.errors import ErrorCode, KafkaError


def disk_error(action: str, path: Path, error: OSError) -> KafkaError:
    """KAFKA_STORAGE_ERROR for a failed system call: what was tried, where, and the system's words."""
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot {action} {path}: {error.strerror or error}")


def damage(path: Path, position: int, reason: str) -> KafkaError:
    """KAFKA_STORAGE_ERROR for bytes that cannot be what was written."""
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} is damaged at byte {position}: {reason}")
