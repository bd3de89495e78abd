"""ApiVersions (18): the APIs and versions that a broker serves (KIP-35, KIP-511, KIP-584, KIP-1242)."""

from __future__ import annotations

from ..wire.schema import (
    Message,
    Request,
    array,
    boolean,
    data,
    int16,
    int32,
    int64,
    request,
    response,
    string,
)


@data()
class ApiVersion(Message):
    """An API and the range of its versions that the broker serves."""

    api_key: int = int16(about="Key of the API.")
    min_version: int = int16(about="First version served.")
    max_version: int = int16(about="Last version served.")


@data()
class SupportedFeatureKey(Message):
    """A feature and the range of levels that it can be set to."""

    name: str = string("3+", about="Name of the feature.")
    min_version: int = int16("3+", about="Lowest level.")
    max_version: int = int16("3+", about="Highest level.")


@data()
class FinalizedFeatureKey(Message):
    """A feature and the range of levels in force."""

    name: str = string("3+", about="Name of the feature.")
    max_version_level: int = int16("3+", about="Highest level in force.")
    min_version_level: int = int16("3+", about="Lowest level in force.")


@response(18, "0-5", flexible="3+")
class ApiVersionsResponse(Message):
    """Answer to ApiVersionsRequest. Its header has version 0 in every version, so that a client of any age can read
    it."""

    error_code: int = int16(
        about="UNSUPPORTED_VERSION if the request's version is unknown; the body is then version 0."
    )
    api_keys: list[ApiVersion] = array(ApiVersion, about="APIs that the broker serves.")
    throttle_time_ms: int = int32("1+", ignorable=True, about="How long a quota delayed the request, in ms.")
    supported_features: list[SupportedFeatureKey] = array(
        SupportedFeatureKey,
        "3+",
        tag=0,
        ignorable=True,
        about="Features that can be finalised; versions below 4 leave out features whose lowest level is 0.",
    )
    finalized_features_epoch: int = int64(
        "3+", tag=1, default=-1, ignorable=True, about="Rises when the finalised features change; -1 unknown."
    )
    finalized_features: list[FinalizedFeatureKey] = array(
        FinalizedFeatureKey,
        "3+",
        tag=2,
        ignorable=True,
        about="Features in force; valid only if the epoch is 0 or more.",
    )
    zk_migration_ready: bool = boolean(
        "3+", tag=3, ignorable=True, about="Always false, since there is no ZooKeeper."
    )


@request(18, "0-5", flexible="3+", response=ApiVersionsResponse)
class ApiVersionsRequest(Request[ApiVersionsResponse]):
    """Request for the APIs that the broker serves, the first request of most clients."""

    client_software_name: str = string("3+", ignorable=True, about="Name of the client library.")
    client_software_version: str = string("3+", ignorable=True, about="Version of the client library.")
    cluster_id: str | None = string(
        "5+",
        nullable="5+",
        default=None,
        ignorable=True,
        about="Id of the cluster that the client expects here; given together with the node id or not at all.",
    )
    node_id: int = int32(
        "5+", default=-1, ignorable=True, about="Id of the broker that the client expects here; -1 unknown."
    )
