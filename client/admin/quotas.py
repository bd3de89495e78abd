"""Client quotas (KIP-546): limits by user, client id and address."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated

from ...protocol.messages.client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    ComponentData,
    DescribeClientQuotasRequest,
    EntityData,
    OpData,
)
from ..bounds import Positive
from .admin_base import AdminBase
from .session import check

Entity = Mapping[str, str | None]
"""Entity type (user, client-id, ip) to name; None is the default of that type."""
_EXACTLY, _DEFAULT = 0, 1


def quota_text(value: float, *, grouped: bool = False) -> str:
    """Return a quota with all its digits and no exponent: 10737418240, 0.5. `grouped` adds commas: 10,737,418,240."""
    if not math.isfinite(value):
        return str(value)
    number = Decimal(int(value)) if value == int(value) else Decimal(repr(float(value)))
    return f"{number:,f}" if grouped else f"{number:f}"


class QuotaAdmin(AdminBase):
    """The methods that list and change client quotas."""

    async def describe_quotas(self, matching: Entity | None = None) -> list[tuple[Entity, dict[str, float]]]:
        """Return the quotas of every entity that has these parts (such as a user and a client id; None is the default),
        or of all entities."""
        components = [
            ComponentData(entity_type=kind, match_type=_DEFAULT if name is None else _EXACTLY, match=name)
            for kind, name in (matching or {}).items()
        ]
        response = await self.session.cluster.ask_any(DescribeClientQuotasRequest(components=components))
        check(response.error_code, "quotas", response.error_message, operation="DESCRIBE_CONFIGS")
        return [
            (
                {part.entity_type: part.entity_name for part in entry.entity},
                {value.key: value.value for value in entry.values},
            )
            for entry in response.entries or ()
        ]

    async def alter_quotas(
        self,
        entity: Entity,
        changes: Mapping[str, Annotated[float, Positive()] | None],
        *,
        validate_only: bool = False,
    ) -> None:
        """Set quotas of one entity.

            await admin.alter_quotas({"client-id": "reports"}, {"consumer_byte_rate": 1_000_000})

        None as a value removes the quota.
        """
        entry = AlterClientQuotasRequestEntryData(
            entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
            ops=[
                OpData(key=key, value=0.0 if value is None else value, remove=value is None)
                for key, value in changes.items()
            ],
        )
        request = AlterClientQuotasRequest(entries=[entry], validate_only=validate_only)
        connection = await self.session.cluster.any_connection()
        response = await connection.request(request)
        for result in response.entries:
            check(result.error_code, "quota", result.error_message, operation="ALTER_CONFIGS")
