"""The limit that applies to a client: the most specific one, in Kafka's order (KIP-55)."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import NamedTuple

from ...protocol.cluster.client_quotas import CLIENT_ID, IP, USER
from ...protocol.cluster.cluster_image import QuotaEntity


class Limit(NamedTuple):
    """The limit that applies to a client, and the (user, client id) under which its use is counted. Clients with equal
    pairs share the limit. None stands for any user or client id.
    """

    value: float
    counted_as: tuple[str | None, str | None]


class QuotaLimits:
    """All limits of one kind of quota, such as producer_byte_rate, by user, client id or address."""

    def __init__(self, quotas: Mapping[QuotaEntity, Mapping[str, float]], key: str) -> None:
        self._values = {
            _as_peers_have_it(entity): values[key] for entity, values in quotas.items() if key in values
        }

    def __bool__(self) -> bool:
        return bool(self._values)

    def of(self, user: str, client_id: str) -> Limit | None:
        """Return the most specific limit that applies to a client; None if there is none."""
        values = self._values
        for named_user in (user, None):
            for named_client in (client_id, None):
                value = values.get(((CLIENT_ID, named_client), (USER, named_user)))
                if value is not None:
                    return Limit(value, (user, client_id))
            value = values.get(((USER, named_user),))
            if value is not None:
                return Limit(value, (user, None))
        for named_client in (client_id, None):
            value = values.get(((CLIENT_ID, named_client),))
            if value is not None:
                return Limit(value, (None, client_id))
        return None

    def of_address(self, address: str) -> Limit | None:
        """Return the limit that applies to an IP address: its own, else the default; None if there is none."""
        for named in (address, None):
            value = self._values.get(((IP, named),))
            if value is not None:
                return Limit(value, (address, None))
        return None


def _as_peers_have_it(entity: QuotaEntity) -> QuotaEntity:
    """Return the entity with its address in normal form. The quorum keeps an address as written, and IPv6 has many
    notations: `2001:DB8:0::1` is `2001:db8::1`."""
    kind, name = entity[0]
    if kind != IP or name is None:
        return entity
    address = ipaddress.ip_address(name)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return ((IP, str(mapped or address)),)
