"""Quotas of clients: limits by user, client id and address (KIP-546, KIP-612)."""

from __future__ import annotations

import ipaddress
import math

from ...protocol.cluster.client_quotas import CLIENT_ID, IP, QUOTA_KEYS, USER, entity_kind
from ...protocol.cluster.cluster_image import QuotaEntity, client_quota_record
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.quota_commands import (
    AlterClientQuotas,
    AlterClientQuotasResult,
    AlteredQuota,
    EntityQuotaChanges,
    QuotaChange,
    QuotaEntityPart,
)
from .refusal import message_of
from .workspace import Workspace


def alter_client_quotas(work: Workspace, command: AlterClientQuotas) -> AlterClientQuotasResult:
    """Change the quotas of each entity independently, with all its changes or none."""
    results: list[AlteredQuota] = []
    for entry in command.entries:
        result = AlteredQuota()
        try:
            entity, values = _changed(work, entry)
            if not command.validate_only and values != work.image.client_quotas.get(entity, {}):
                work.emit(client_quota_record(entity, values))
        except KafkaError as error:
            result.error_code, result.error_message = error.code, message_of(error)
        results.append(result)
    return AlterClientQuotasResult(entries=results)


def _changed(work: Workspace, entry: EntityQuotaChanges) -> tuple[QuotaEntity, dict[str, float]]:
    """Return the quota entity (user, client id or address) and all its quotas by name after the changes. Raises
    KafkaError."""
    entity = _entity(entry.entity)
    kind = entity_kind(entity)
    values = dict(work.image.client_quotas.get(entity, {}))
    named: set[str] = set()
    for change in entry.changes:
        if change.key in named:
            raise _refusal(f"Duplicate quota key {change.key}")
        named.add(change.key)
        if change.remove:
            values.pop(change.key, None)
        else:
            values[change.key] = _value(change, kind)
    return entity, values


def _entity(parts: list[QuotaEntityPart]) -> QuotaEntity:
    if not parts:
        raise _refusal("Invalid empty client quota entity")
    names: dict[str, str | None] = {}
    for part in parts:
        kind, name = part.entity_type, part.entity_name
        if kind in names:
            raise _refusal(f"Invalid client quota entity, duplicate entity entry {kind}")
        if kind not in (USER, CLIENT_ID, IP):
            raise _refusal(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _refusal(f"Empty {kind} not supported")
        names[kind] = name
    if IP in names:
        if len(names) > 1:
            raise _refusal(
                "Invalid quota entity combination, IP entity should not be combined with User or ClientId"
            )
        _check_address(names[IP])
    return tuple(sorted(names.items()))


def _check_address(text: str | None) -> None:
    if text is None:
        return
    try:
        ipaddress.ip_address(text)
    except ValueError:
        raise _refusal(f"{text} is not a valid IP address") from None


def _value(change: QuotaChange, kind: str) -> float:
    quota = QUOTA_KEYS.get(change.key)
    if quota is None or quota.kind != kind:
        raise _refusal(f"Invalid configuration key {change.key}")
    if not (change.value > 0 and math.isfinite(change.value)):
        raise _refusal(f"Quota {change.key} must be greater than 0")
    if quota.most is None:
        return change.value
    if change.value > quota.most:
        raise _refusal(f"Proposed value for {change.key} is too large: at most {quota.most} is allowed")
    if abs(change.value - round(change.value)) > 1e-6:
        raise _refusal(f"{change.key} cannot be a fractional value.")
    return float(round(change.value))


def _refusal(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
