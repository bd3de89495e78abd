"""Settings of the data folders that may change while the broker runs."""

from __future__ import annotations

from pathlib import Path

from ..protocol.cluster_image import ClusterImage
from ..protocol.messages.quorum_commands import ResourceType
from .config import BrokerConfig

CORDONED = "cordoned.log.dirs"
MOVE_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
_ALL = "*"


def move_bytes_per_second(image: ClusterImage, config: BrokerConfig) -> float:
    """How fast replicas may be copied from one folder into another."""
    return float(_value(image, config, MOVE_RATE) or "inf")


def cordoned_folders(image: ClusterImage, config: BrokerConfig) -> frozenset[Path]:
    """The folders that new replicas shall stay out of (KIP-1066)."""
    named = {text.strip() for text in (_value(image, config, CORDONED) or "").split(",")}
    return frozenset(path for path in config.log_dirs if _ALL in named or str(path) in named)


def _value(image: ClusterImage, config: BrokerConfig, key: str) -> str | None:
    """This broker's dynamic value, else that of all brokers, else the file's."""
    for name in (str(config.node_id), ""):
        value = image.configs.get((ResourceType.BROKER, name), {}).get(key)
        if value is not None:
            return value
    return config.properties.get(key)
