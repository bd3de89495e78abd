"""The kinds of quotas, and of entities with quotas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..settings.config_key import INT_MAX, LONG_MAX
from .cluster_image import QuotaEntity

USER, CLIENT_ID, IP = "user", "client-id", "ip"
_CLIENTS, _ADDRESSES = "clients", "addresses"


@dataclass(frozen=True, slots=True)
class QuotaKey:
    """A quota. `kind`: the entities that can have it. `most`: the highest whole number allowed; None allows any
    number."""

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
    """Return the kind of quotas that the entity can have."""
    return _ADDRESSES if any(kind == IP for kind, _ in entity) else _CLIENTS
