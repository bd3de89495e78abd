"""Settings of the data folders that may change while the broker runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...protocol.settings.config_key import ConfigError
from ..broker_settings import BrokerSettings

CORDONED = "cordoned.log.dirs"
MOVE_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
_ALL = "*"


def move_bytes_per_second(settings: BrokerSettings) -> float:
    """Return the maximum rate, in bytes per second, at which replicas are copied from one folder to another."""
    return settings.number(MOVE_RATE)


def cordoned_folders(settings: BrokerSettings, log_dirs: Sequence[Path]) -> frozenset[Path]:
    """Return the cordoned data folders: those of `log_dirs` that get no new replicas (KIP-1066)."""
    named = _items(settings.text(CORDONED))
    return frozenset(path for path in log_dirs if _ALL in named or _names(path) & set(named))


def check_cordoned(text: str, log_dirs: Sequence[Path]) -> None:
    """Raise ConfigError, with Kafka's text, unless `text` is `*` or names folders of `log.dirs`, each once."""
    named = _items(text)
    if len(set(named)) < len(named):
        raise ConfigError(f"Configuration '{CORDONED}' values must not be duplicated.")
    if _ALL in named:
        if len(named) > 1:
            raise ConfigError(f"When {CORDONED} is set to *, it must not contain other values")
        return
    known = {name for path in log_dirs for name in _names(path)}
    missing = [name for name in named if name not in known]
    if missing:
        raise ConfigError(
            f"All entries in {CORDONED} must be present in log.dirs or log.dir. "
            f"Missing entries : {', '.join(missing)}"
        )


def _names(path: Path) -> set[str]:
    """Return the names under which a setting may mention the folder: its path as in log.dirs, and its absolute path as
    in DescribeLogDirs.
    """
    return {str(path), str(path.absolute())}


def _items(text: str | None) -> list[str]:
    return [item for part in (text or "").split(",") if (item := part.strip())]
