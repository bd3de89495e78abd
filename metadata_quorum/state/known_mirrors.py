"""The mirror that a command names."""

from __future__ import annotations

from ...protocol.cluster.mirror_table import Mirror
from ...protocol.errors import ErrorCode, KafkaError
from .workspace import Workspace


def known_mirror(work: Workspace, name: str) -> Mirror:
    """Raises KafkaError if there is none of this name."""
    mirror = work.image.mirrors.by_name.get(name)
    if mirror is None:
        raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, f"there is no mirror {name!r}")
    return mirror


def refused_for_mirror(message: str) -> KafkaError:
    """The error for what a mirror cannot do as it is."""
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
