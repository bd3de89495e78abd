"""Log levels of this process by name of logger, for the life of the process (KIP-412).

The names are those in the log's lines, for example `dataplane.broker`. The name `root` stands for all other loggers.
"""

from __future__ import annotations

import logging

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.config_commands import ConfigChange, ConfigOperation
from ....protocol.settings.config_chain import ConfigSource
from .config_view import EffectiveSetting

_ROOT = "root"
_PACKAGE = "ottla."
# Kafka's levels. Python's logging has no level below DEBUG, so TRACE is DEBUG.
_LEVELS = {
    "DEBUG": logging.DEBUG,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "INFO": logging.INFO,
    "TRACE": logging.DEBUG,
    "WARN": logging.WARNING,
}
_NAMES = {
    logging.DEBUG: "DEBUG",
    logging.INFO: "INFO",
    logging.WARNING: "WARN",
    logging.ERROR: "ERROR",
    logging.CRITICAL: "FATAL",
}


class BrokerLoggers:
    """The log levels of this process, which clients describe and change as settings. All changes of a request are
    checked before any is made."""

    def entries(self) -> list[EffectiveSetting]:
        """Return every logger as a setting whose value is the effective level, which may be that of a parent logger."""
        return [
            EffectiveSetting(name, _level_name(logger), ConfigSource.DYNAMIC_BROKER_LOGGER)
            for name, logger in sorted(_loggers().items())
        ]

    def check(self, changes: list[ConfigChange]) -> None:
        """Check changes of log levels. Raises KafkaError for the first that cannot be made: an unknown logger, level or
        operation."""
        known = _loggers()
        for change in changes:
            if change.operation in (ConfigOperation.APPEND, ConfigOperation.SUBTRACT):
                operation = ConfigOperation(change.operation).name
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"{operation} operation is not allowed for the BROKER_LOGGER resource",
                )
            if change.name not in known:
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {change.name} does not exist!")
            if change.operation == ConfigOperation.DELETE:
                if change.name == _ROOT:
                    raise KafkaError(
                        ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed"
                    )
            elif (change.value or "").upper() not in _LEVELS:
                raise KafkaError(
                    ErrorCode.INVALID_CONFIG,
                    f"Cannot set the log level of {change.name} to {change.value} as it is not a supported "
                    f"log level. Valid log levels are {', '.join(_LEVELS)}",
                )

    def change(self, changes: list[ConfigChange]) -> None:
        """Set log levels as the checked changes ask. A deleted level falls back to the parent logger's."""
        known = _loggers()
        for change in changes:
            deleted = change.operation == ConfigOperation.DELETE
            known[change.name].setLevel(logging.NOTSET if deleted else _LEVELS[(change.value or "").upper()])


def _loggers() -> dict[str, logging.Logger]:
    """Return the existing loggers by the names that they have in the log."""
    found = {
        name.removeprefix(_PACKAGE): logger
        for name, logger in logging.root.manager.loggerDict.items()
        if isinstance(logger, logging.Logger)
    }
    return found | {_ROOT: logging.root}


def _level_name(logger: logging.Logger) -> str:
    level = logger.getEffectiveLevel()
    return _NAMES.get(level) or logging.getLevelName(level)
