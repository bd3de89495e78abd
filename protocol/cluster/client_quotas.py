"""The quotas that the cluster supports, and the entities that can have each: users and client ids, or IP addresses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..settings.config_key import INT_MAX, LONG_MAX
from .cluster_image import QuotaEntity

USER, CLIENT_ID, IP = "user", "client-id", "ip"
_CLIENTS, _ADDRESSES = "clients", "addresses"


@dataclass(frozen=True, slots=True)
class QuotaKey:
    """A kind of quota. `kind`: the entities that can have it, clients or addresses. `most`: the highest whole number
    allowed; None also allows fractions and any size."""

    name: str
    kind: str
    most: int | None


QUOTA_KEYS: Mapping[str, QuotaKey] = {
    key.name: key
    for key in (
        QuotaKey("producer_byte_rate", _CLIENTS, LONG_MAX),  # bytes per second
        QuotaKey("consumer_byte_rate", _CLIENTS, LONG_MAX),  # bytes per second
        QuotaKey("request_percentage", _CLIENTS, None),  # of one processor's time
        QuotaKey("controller_mutation_rate", _CLIENTS, None),  # partitions per second
        QuotaKey("connection_creation_rate", _ADDRESSES, INT_MAX),  # connections per second
    )
}


def entity_kind(entity: QuotaEntity) -> str:
    """Return the kind of entity, clients or addresses, which determines the quotas that the entity can have."""
    return _ADDRESSES if any(kind == IP for kind, _ in entity) else _CLIENTS
