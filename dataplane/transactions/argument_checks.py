"""What requests about transactions may say. Each check raises KafkaError."""

from __future__ import annotations

from ottla.protocol.errors import ErrorCode, KafkaError


def check_transactional_id(transactional_id: str) -> None:
    """INVALID_REQUEST for an empty one."""
    if not transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a transactional id is not empty")


def check_timeout(timeout_ms: int, most: int) -> None:
    """INVALID_TRANSACTION_TIMEOUT for one that is not above zero, or above what brokers allow."""
    if not 0 < timeout_ms <= most:
        raise KafkaError(
            ErrorCode.INVALID_TRANSACTION_TIMEOUT,
            f"transaction.timeout.ms is {timeout_ms}: it must be from 1 to transaction.max.timeout.ms, {most}",
        )


def check_app_version(app_version: int) -> None:
    """INVALID_REQUEST for what is neither a version nor -1."""
    if app_version < -1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"application version {app_version}: it must be 0 or more, or -1 for none",
        )
