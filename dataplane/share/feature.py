"""The feature that share groups depend on."""

from __future__ import annotations

from collections.abc import Mapping

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.features import FEATURES, SHARE


def share_level(levels: Mapping[str, int]) -> int:
    """Return the level of `share.version` in force, given the levels that the quorum stores; 0: no share groups."""
    return levels.get(SHARE, FEATURES[SHARE].default)


def check_share_level(levels: Mapping[str, int]) -> None:
    """Raise KafkaError UNSUPPORTED_VERSION unless share groups are in force."""
    check_level(share_level(levels))


def check_level(level: int) -> None:
    """Raise KafkaError UNSUPPORTED_VERSION unless share groups are in force at this level of `share.version`."""
    if level == 0:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"share groups need the feature {SHARE} at level 1 or higher",
        )
