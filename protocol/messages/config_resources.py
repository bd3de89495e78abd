"""ListConfigResources (74): the resources that have a configuration (KIP-1142)."""

from __future__ import annotations

from ..wire.schema import Message, Request, array, data, int8, int16, int32, request, response, string


@data()
class ConfigResource(Message):
    """A resource that has a configuration, by type and name, such as a topic or a group."""

    resource_name: str = string(about="Topic name, broker id, or empty for all brokers.")
    resource_type: int = int8(
        "1+",
        default=16,
        ignorable=True,
        about="2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group.",
    )


@response(74, "0-1", flexible="0+")
class ListConfigResourcesResponse(Message):
    """Answer to ListConfigResourcesRequest."""

    throttle_time_ms: int = int32(about="How long a quota delayed the request, in ms.")
    error_code: int = int16(about="Error code, 0 for success.")
    config_resources: list[ConfigResource] = array(
        ConfigResource, about="Resources that have a configuration."
    )


@request(74, "0-1", flexible="0+", response=ListConfigResourcesResponse)
class ListConfigResourcesRequest(Request[ListConfigResourcesResponse]):
    """Request for the topics, brokers, groups and client metrics subscriptions that have a configuration."""

    resource_types: list[int] = array(int8, "1+", about="Types wanted; empty for all.")
