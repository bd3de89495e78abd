"""DescribeClientQuotas (0-1) and AlterClientQuotas (0-1): limits by user, client id and address (KIP-546).

Any broker describes the quotas that the quorum keeps. The quorum validates changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from enum import IntEnum

from ...protocol.cluster.acls import AclOperation
from ...protocol.cluster.client_quotas import CLIENT_ID, IP, USER
from ...protocol.cluster.cluster_image import QuotaEntity
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages import quota_commands as commands
from ...protocol.messages.client_quotas import (
    AlterClientQuotasEntryData,
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from ...protocol.messages.command import refusal
from ..quorum.access import Quorum
from ..runtime.time_slices import pieces
from ..security.authorization.needs import cluster
from ..server.error_answers import ErrorAnswers
from ..server.handler import ClientRequest, handles

# A limit, so that one entry of the quorum's log does not hold it up for long.
_ENTRIES_PER_COMMAND = 250


class MatchType(IntEnum):
    """Kafka's kinds of conditions on one part (user, client id, address) of a quota's entity."""

    EXACT = 0
    DEFAULT = 1
    SPECIFIED = 2


def _alter_error(message: AlterClientQuotasRequest, error: KafkaError) -> AlterClientQuotasResponse:
    """Return the answer to a failed AlterClientQuotas, with the error for each entry.

    `server.error_answers` cannot derive it from the schema, since entries repeat their entities sorted.
    """
    return AlterClientQuotasResponse(entries=[_altered(entry, error) for entry in message.entries])


def _altered(
    entry: AlterClientQuotasRequestEntryData, error: KafkaError | None
) -> AlterClientQuotasEntryData:
    return AlterClientQuotasEntryData(
        error_code=error.code if error else ErrorCode.NONE,
        error_message=error.message if error else None,
        entity=sorted(entry.entity, key=lambda part: part.entity_type),
    )


def in_kafkas_order(names: Collection[str]) -> list[str]:
    """Return the names of quotas in the order in which Kafka lists them, on which some clients rely.

    Kafka keeps the changes in a Java hash map of 16 buckets, and then all quotas in a map that is at most three
    quarters full. This is the order of such a map.
    """
    buckets = 2
    while len(names) > buckets * 3 // 4:
        buckets *= 2

    def place(name: str) -> tuple[int, int]:
        number = 0
        for character in name.encode():
            number = (31 * number + character) & 0xFFFFFFFF
        spread = number ^ (number >> 16)
        return spread % buckets, spread % 16

    return sorted(names, key=place)


class ClientQuotaHandlers:
    """Shows quotas, and passes changes to the quorum."""

    def __init__(self, quorum: Quorum) -> None:
        self._quorum = quorum

    @handles(
        DescribeClientQuotasRequest,
        0,
        1,
        errors=ErrorAnswers(values={"entries": None}),
        needs=cluster(AclOperation.DESCRIBE_CONFIGS),
    )
    def describe_client_quotas(
        self, request: ClientRequest, message: DescribeClientQuotasRequest
    ) -> DescribeClientQuotasResponse:
        """Return the quotas of every entity that all components match."""
        components = _components(message.components)
        return DescribeClientQuotasResponse(
            error_message="",
            entries=[
                EntryData(
                    entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                    values=[ValueData(key=key, value=values[key]) for key in in_kafkas_order(values)],
                )
                for entity, values in self._quorum.image.client_quotas.items()
                if matches(entity, components, strict=message.strict)
            ],
        )

    @handles(AlterClientQuotasRequest, 0, 1, on_error=_alter_error, needs=cluster(AclOperation.ALTER_CONFIGS))
    async def alter_client_quotas(
        self, request: ClientRequest, message: AlterClientQuotasRequest
    ) -> AlterClientQuotasResponse:
        """Alter each entity separately. An entity that is named twice is refused."""
        times = Counter(_parts(entry) for entry in message.entries)
        wanted = [entry for entry in message.entries if times[_parts(entry)] == 1]
        failures: list[KafkaError | None] = []
        for some in pieces(wanted, _ENTRIES_PER_COMMAND):
            command = commands.AlterClientQuotas(
                entries=[_changes(entry) for entry in some], validate_only=message.validate_only
            )
            try:
                outcome = await self._quorum.submit(command, author=request.session)
            except KafkaError as error:
                failures += [error] * (len(wanted) - len(failures))
                break
            failures += map(refusal, outcome.entries)
        results = iter(failures)
        return AlterClientQuotasResponse(
            entries=[
                _altered(
                    entry,
                    next(results)
                    if times[_parts(entry)] == 1
                    else KafkaError(ErrorCode.INVALID_REQUEST, "Each entity must appear at most once."),
                )
                for entry in message.entries
            ]
        )


def _parts(entry: AlterClientQuotasRequestEntryData) -> frozenset[tuple[str, str | None]]:
    return frozenset((part.entity_type, part.entity_name) for part in entry.entity)


def _changes(entry: AlterClientQuotasRequestEntryData) -> commands.EntityQuotaChanges:
    return commands.EntityQuotaChanges(
        entity=[
            commands.QuotaEntityPart(entity_type=part.entity_type, entity_name=part.entity_name)
            for part in entry.entity
        ],
        changes=[commands.QuotaChange(key=op.key, value=op.value, remove=op.remove) for op in entry.ops],
    )


def _components(given: Iterable[ComponentData]) -> dict[str, ComponentData]:
    """Return the components of a quota filter by entity type (user, client id, ip). Raises KafkaError for filters that
    Kafka refuses."""
    components: dict[str, ComponentData] = {}
    for component in given:
        kind = component.entity_type
        if kind in components:
            raise _refusal(f"Entity type {kind} cannot appear more than once in the filter.")
        if not kind:
            raise _refusal("Invalid empty entity type.")
        if kind not in (USER, CLIENT_ID, IP):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        try:
            match_type = MatchType(component.match_type)
        except ValueError:
            raise _refusal(f"Unknown match type {component.match_type}") from None
        asked = f"Request specified MATCH_TYPE_{match_type.name}"
        if match_type is MatchType.EXACT and component.match is None:
            raise _refusal(f"{asked}, but set match string to null.")
        if match_type is not MatchType.EXACT and component.match is not None:
            raise _refusal(f"{asked}, but also specified a match string.")
        components[kind] = component
    if IP in components and len(components) > 1:
        raise _refusal(
            "Invalid entity filter component combination. IP filter component should not be used with user "
            "or clientId filter component."
        )
    return components


def matches(entity: QuotaEntity, components: dict[str, ComponentData], *, strict: bool) -> bool:
    """Return whether a quota's entity has every part (user, client id, ip) that the filter's components name and, with
    `strict`, no other part."""
    names = dict(entity)
    if strict and len(names) != len(components):
        return False
    return all(
        kind in names and (component.match_type == MatchType.SPECIFIED or names[kind] == component.match)
        for kind, component in components.items()
    )


def _refusal(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
