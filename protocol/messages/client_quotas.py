"""DescribeClientQuotas (48), AlterClientQuotas (49): limits by user and client id (KIP-546)."""

from __future__ import annotations

from ..wire.schema import (
    Message,
    Request,
    array,
    boolean,
    data,
    float64,
    int8,
    int16,
    int32,
    request,
    response,
    string,
)


@data()
class EntityData(Message):
    """A part of the name of a quota's entity: a user, a client id or an IP address. An entity may have a user and a
    client id."""

    entity_type: str = string(about="user, client-id or ip.")
    entity_name: str | None = string(nullable="0+", about="Name of the entity; null for the default.")


@data()
class ValueData(Message):
    """A quota of an entity: its name, such as `producer_byte_rate`, and its value."""

    key: str = string(about="Name of the quota.")
    value: float = float64(about="Value of the quota.")


@data()
class EntryData(Message):
    """An entity (user, client id or IP address) with its quotas, in the answer to DescribeClientQuotas."""

    entity: list[EntityData] = array(EntityData, about="Parts that name the entity.")
    values: list[ValueData] = array(ValueData, about="Quotas by name.")


@response(48, "0-1", flexible="1+")
class DescribeClientQuotasResponse(Message):
    """Answer to DescribeClientQuotasRequest."""

    throttle_time_ms: int = int32(about="How long a quota delayed the request, in ms.")
    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(nullable="0+", about="Explanation for people; null without one.")
    entries: list[EntryData] | None = array(EntryData, nullable="0+", about="Entities with their quotas.")


@data()
class ComponentData(Message):
    """A condition of DescribeClientQuotas on one part of an entity's name: the user, the client id or the IP
    address."""

    entity_type: str = string(about="user, client-id or ip.")
    match_type: int = int8(about="0 exactly this name, 1 the default entity, 2 any name.")
    match: str | None = string(nullable="0+", about="Name to match; null if the match type needs none.")


@request(48, "0-1", flexible="1+", response=DescribeClientQuotasResponse)
class DescribeClientQuotasRequest(Request[DescribeClientQuotasResponse]):
    """Request for the quotas of the entities (users, client ids, IP addresses) that meet its conditions."""

    components: list[ComponentData] = array(ComponentData, about="Conditions on the entities.")
    strict: bool = boolean(about="Whether to leave out entities that have further parts.")


@data()
class AlterClientQuotasEntryData(Message):
    """Result of the changes of one entity's quotas."""

    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(nullable="0+", about="Explanation for people; null without one.")
    entity: list[EntityData] = array(EntityData, about="Parts that name the entity.")


@response(49, "0-1", flexible="1+")
class AlterClientQuotasResponse(Message):
    """Answer to AlterClientQuotasRequest."""

    throttle_time_ms: int = int32(about="How long a quota delayed the request, in ms.")
    entries: list[AlterClientQuotasEntryData] = array(
        AlterClientQuotasEntryData, about="Results, one for each entity."
    )


@data()
class OpData(Message):
    """A change of one quota: its new value, or its removal."""

    key: str = string(about="Name of the quota.")
    value: float = float64(about="New value of the quota.")
    remove: bool = boolean(about="Whether the quota is removed.")


@data()
class AlterClientQuotasRequestEntryData(Message):
    """An entity (user, client id or IP address), and its quotas to set or remove."""

    entity: list[EntityData] = array(EntityData, about="Parts that name the entity.")
    ops: list[OpData] = array(OpData, about="Quotas to set or remove.")


@request(49, "0-1", flexible="1+", response=AlterClientQuotasResponse)
class AlterClientQuotasRequest(Request[AlterClientQuotasResponse]):
    """Request to set or remove quotas of users, client ids and IP addresses."""

    entries: list[AlterClientQuotasRequestEntryData] = array(
        AlterClientQuotasRequestEntryData, about="Changes, by entity."
    )
    validate_only: bool = boolean(about="Whether to validate only, without any change.")
