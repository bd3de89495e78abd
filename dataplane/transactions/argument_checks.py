"""Checks of arguments in requests about transactions. Each check raises KafkaError."""

from __future__ import annotations

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.settings.transactional_ids import LETTERS_PREFIX


def check_transactional_id(transactional_id: str) -> None:
    """Raise KafkaError INVALID_REQUEST if the transactional id is empty, or brokers use it themselves."""
    if not transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a transactional id is not empty")
    if transactional_id.startswith(LETTERS_PREFIX):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"transactional ids that begin with {LETTERS_PREFIX} are for the dead letters of brokers",
        )


def check_timeout(timeout_ms: int, most: int) -> None:
    """Raises INVALID_TRANSACTION_TIMEOUT unless the timeout is above zero, and at most what brokers allow."""
    if not 0 < timeout_ms <= most:
        raise KafkaError(
            ErrorCode.INVALID_TRANSACTION_TIMEOUT,
            f"transaction.timeout.ms is {timeout_ms}: it must be from 1 to transaction.max.timeout.ms, {most}",
        )


def check_app_version(app_version: int) -> None:
    """Raise KafkaError INVALID_REQUEST unless the application version is 0 or more, or -1 for none."""
    if app_version < -1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"application version {app_version}: it must be 0 or more, or -1 for none",
        )
