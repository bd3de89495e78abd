"""UpdateFeatures (57): finalize feature levels (KIP-584)."""

from __future__ import annotations

from typing import Final

from ..wire.schema import (
    Message,
    Request,
    array,
    boolean,
    data,
    int8,
    int16,
    int32,
    request,
    response,
    string,
)

UPGRADE: Final = 1
SAFE_DOWNGRADE: Final = 2
UNSAFE_DOWNGRADE: Final = 3
"""Kinds of changes of a feature's level (KIP-584)."""


@data()
class UpdatableFeatureResult(Message):
    """Result of the update of one feature."""

    feature: str = string(about="Name of the feature.")
    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(nullable="0+", about="Explanation for people; null without one.")


@response(57, "0-2", flexible="0+")
class UpdateFeaturesResponse(Message):
    """Answer to UpdateFeaturesRequest."""

    throttle_time_ms: int = int32(about="How long a quota delayed the request, in ms.")
    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(nullable="0+", about="Explanation for people; null without one.")
    results: list[UpdatableFeatureResult] = array(
        UpdatableFeatureResult, "0-1", ignorable=True, about="Results, by feature."
    )


@data()
class FeatureUpdateKey(Message):
    """A feature and the level to finalize."""

    feature: str = string(about="Name of the feature.")
    max_version_level: int = int16(about="Highest level in force.")
    allow_downgrade: bool = boolean("0", about="Whether the level may fall.")
    upgrade_type: int = int8(
        "1+", default=1, about="1 raise only, 2 lower if nothing is lost, 3 lower even if metadata is lost."
    )


@request(57, "0-2", flexible="0+", response=UpdateFeaturesResponse)
class UpdateFeaturesRequest(Request[UpdateFeaturesResponse]):
    """Request to raise or lower the levels of features."""

    timeout_ms: int = int32(default=60000, about="Time within which the broker has to answer, in ms.")
    feature_updates: list[FeatureUpdateKey] = array(FeatureUpdateKey, about="Levels to finalize.")
    validate_only: bool = boolean("1+", about="Whether to validate only, without any change.")
