"""DescribeConfigs (32), AlterConfigs (33), IncrementalAlterConfigs (44)."""

from __future__ import annotations

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


@data()
class DescribeConfigsSynonym(Message):
    """A value that one source, such as a broker's file, gives to a configuration key. It is in force, or hidden by
    another source's value."""

    name: str = string("1+", about="Configuration key.")
    value: str | None = string("1+", nullable="0+", about="Value; null for none.")
    source: int = int8("1+", about="Source of the value, as in `config_source`.")


@data()
class DescribeConfigsResourceResult(Message):
    """A configuration entry with its value in force."""

    name: str = string(about="Configuration key.")
    value: str | None = string(nullable="0+", about="Value; null for none.")
    read_only: bool = boolean(about="Whether the entry cannot be changed.")
    config_source: int = int8(
        "1+",
        default=-1,
        ignorable=True,
        about="Source of the value: 1 topic, 2 broker, 3 all brokers, 4 static, 5 default.",
    )
    is_default: bool = boolean("0", about="Whether the value is the default.")
    is_sensitive: bool = boolean(about="Whether the value is kept secret.")
    synonyms: list[DescribeConfigsSynonym] = array(
        DescribeConfigsSynonym,
        "1+",
        ignorable=True,
        about="Values for the key, in the order of their precedence.",
    )
    config_type: int = int8(
        "3+",
        ignorable=True,
        about="1 boolean, 2 string, 3 int, 4 short, 5 long, 6 double, 7 list, 8 class, 9 password.",
    )
    documentation: str | None = string("3+", nullable="0+", ignorable=True, about="Description of the key.")


@data()
class DescribeConfigsResult(Message):
    """Configuration of one resource, such as a topic or a broker."""

    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(nullable="0+", about="Explanation for people; null without one.")
    resource_type: int = int8(about="2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group.")
    resource_name: str = string(about="Name of the resource.")
    configs: list[DescribeConfigsResourceResult] = array(
        DescribeConfigsResourceResult, about="Configuration entries."
    )


@response(32, "1-4", flexible="4+")
class DescribeConfigsResponse(Message):
    """Answer to DescribeConfigsRequest."""

    throttle_time_ms: int = int32(about="How long a quota delayed the request, in ms.")
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult, about="Results, by resource.")


@data()
class DescribeConfigsResource(Message):
    """A resource, such as a topic or a broker, whose configuration is asked for."""

    resource_type: int = int8(about="2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group.")
    resource_name: str = string(about="Name of the resource.")
    configuration_keys: list[str] | None = array(string, nullable="0+", about="Keys to show; null for all.")


@request(32, "1-4", flexible="4+", response=DescribeConfigsResponse)
class DescribeConfigsRequest(Request[DescribeConfigsResponse]):
    """Request for configurations."""

    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource, about="Resources to describe.")
    include_synonyms: bool = boolean("1+", about="Whether to show the values that the value in force hides.")
    include_documentation: bool = boolean("3+", about="Whether to show the descriptions of the keys.")


@data()
class AlterConfigsResourceResponse(Message):
    """Result of the changes of one resource's configuration."""

    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(nullable="0+", about="Explanation for people; null without one.")
    resource_type: int = int8(about="2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group.")
    resource_name: str = string(about="Name of the resource.")


@response(44, "0-1", flexible="1+")
class IncrementalAlterConfigsResponse(Message):
    """Answer to IncrementalAlterConfigsRequest."""

    throttle_time_ms: int = int32(about="How long a quota delayed the request, in ms.")
    responses: list[AlterConfigsResourceResponse] = array(
        AlterConfigsResourceResponse, about="Results, by resource."
    )


@data()
class AlterableConfig(Message):
    """A change of one configuration key."""

    name: str = string(about="Configuration key.")
    config_operation: int = int8(about="0 set, 1 delete, 2 append, 3 subtract.")
    value: str | None = string(nullable="0+", secret=True, about="Value; null for none.")


@data()
class AlterConfigsResource(Message):
    """Changes of the configuration of one resource, such as a topic or a broker."""

    resource_type: int = int8(about="2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group.")
    resource_name: str = string(about="Name of the resource.")
    configs: list[AlterableConfig] = array(AlterableConfig, about="Configuration entries.")


@request(44, "0-1", flexible="1+", response=IncrementalAlterConfigsResponse)
class IncrementalAlterConfigsRequest(Request[IncrementalAlterConfigsResponse]):
    """Request to change single configuration entries (KIP-339)."""

    resources: list[AlterConfigsResource] = array(AlterConfigsResource, about="Resources to change.")
    validate_only: bool = boolean(about="Whether to validate only, without any change.")


@response(33, "0-2", flexible="2+")
class AlterConfigsResponse(Message):
    """Answer to AlterConfigsRequest."""

    throttle_time_ms: int = int32(about="How long a quota delayed the request, in ms.")
    responses: list[AlterConfigsResourceResponse] = array(
        AlterConfigsResourceResponse, about="Results, by resource."
    )


@data()
class ReplacedConfig(Message):
    """A configuration entry, key and value, that a resource gets."""

    name: str = string(about="Configuration key.")
    value: str | None = string(nullable="0+", secret=True, about="Value; null for none.")


@data()
class ReplaceConfigsResource(Message):
    """A resource with its whole new configuration."""

    resource_type: int = int8(about="2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group.")
    resource_name: str = string(about="Name of the resource.")
    configs: list[ReplacedConfig] = array(ReplacedConfig, about="Configuration entries.")


@request(33, "0-2", flexible="2+", response=AlterConfigsResponse)
class AlterConfigsRequest(Request[AlterConfigsResponse]):
    """Request to replace whole configurations; IncrementalAlterConfigs is its successor."""

    resources: list[ReplaceConfigsResource] = array(
        ReplaceConfigsResource, about="Resources whose configurations are replaced."
    )
    validate_only: bool = boolean(about="Whether to validate only, without any change.")
