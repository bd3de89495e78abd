"""Look-up of the mirror that a command names."""

from __future__ import annotations

from ...protocol.cluster.mirror_table import Mirror
from ...protocol.errors import ErrorCode, KafkaError
from .workspace import Workspace


def known_mirror(work: Workspace, name: str) -> Mirror:
    """Return the mirror of this name. Raises KafkaError if there is none."""
    mirror = work.image.mirrors.by_name.get(name)
    if mirror is None:
        raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, f"there is no mirror {name!r}")
    return mirror


def refused_for_mirror(message: str) -> KafkaError:
    """Return the error for an operation that a mirror's state does not allow."""
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
