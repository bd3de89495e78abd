"""Quotas: the limits of clients by user, client id and address, and forms that change them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from ....client.admin import Admin
from ....client.admin.quotas import Entity, quota_text
from ...area import BadQuestion, Change, Difference, Done, Form, FormField, Visit, check_as_shown
from ...commands import option
from ...formats import link
from ...key_values import edited, lines_fields, pairs_of, set_and_unset
from ...sorting import Column

KINDS: Final = ("user", "client-id", "ip")
KEYS: Final = (
    "producer_byte_rate, consumer_byte_rate, request_percentage and controller_mutation_rate of users and client ids, "
    "connection_creation_rate of addresses"
)
FIELD: Final = "quotas"
_RULE: Final = "a quota is key=number, above 0"
_GROUPED: Final = re.compile(r"[0-9]{1,3}(,[0-9]{3})+(\.[0-9]+)?")
"""Numbers with separators of thousands. Other commas are none: 1,5 is not 15."""
_DEFAULT: Final = "default "
"""A prefix of a kind: the name of the field, and of the query parameter, for all entities without their own quota."""


@dataclass(frozen=True, slots=True)
class QuotaRow:
    """The quotas of one entity as a table row; `address` is the URL of the form that changes them."""

    entity: str
    quotas: str
    address: str


COLUMNS: Final = (
    Column[QuotaRow]("clients", "clients", lambda row: row.entity),
    Column[QuotaRow]("quotas", "quotas", lambda row: row.quotas),
)


def quota_rows(found: Sequence[tuple[Entity, Mapping[str, float]]]) -> list[QuotaRow]:
    """Return the table rows of the entities' quotas, ordered by entity."""
    rows = [
        QuotaRow(
            entity_text(entity),
            ", ".join(f"{key} {quota_text(value, grouped=True)}" for key, value in sorted(quotas.items())),
            link("/access/quotas/alter", **_parts(entity)),
        )
        for entity, quotas in found
    ]
    return sorted(rows, key=lambda row: row.entity)


def entity_text(entity: Entity) -> str:
    """Format a quota's entity: `client-id (any other), user ann`.

    `(any other)` stands for all without a separate quota.
    """
    return ", ".join(f"{kind} {name or '(any other)'}" for kind, name in sorted(entity.items()))


def _parts(entity: Entity) -> dict[str, str]:
    return {(kind if name else _DEFAULT + kind): name or "yes" for kind, name in entity.items()}


def entity_of(given: Mapping[str, str]) -> Entity:
    """Return the quota's entity (user, client id or address) that form fields or query parameters name.

    Raises BadQuestion.
    """
    entity: dict[str, str | None] = {}
    for kind in KINDS:
        name, is_default = given.get(kind, ""), given.get(_DEFAULT + kind) == "yes"
        if name and is_default:
            raise BadQuestion(f"{kind} is either {name[:80]!r} or any other, and not both")
        if name or is_default:
            entity[kind] = name or None
    if not entity:
        raise BadQuestion(f"whose quotas? Name one or more of {', '.join(KINDS)}")
    if "ip" in entity and len(entity) > 1:
        raise BadQuestion("quotas of an address go with no user and no client id")
    return entity


def quotas_of(text: str) -> dict[str, float]:
    """Parse the quotas of a form, lines `key=number`. Raises BadQuestion."""
    return {key: _limit(key, value) for key, value in pairs_of(text, _RULE).items()}


def _limit(key: str, value: str) -> float:
    if _GROUPED.fullmatch(value):
        value = value.replace(",", "")
    try:
        number = float(value.replace("_", ""))
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise BadQuestion(f"{_RULE}, not {f'{key}={value}'[:80]!r}")
    return number


def quota_changes(before: Mapping[str, float], asked: Mapping[str, float | None]) -> dict[str, float | None]:
    """Return the requested quotas that differ from the present quotas; None removes a quota.

    Raises BadQuestion if there is no difference.
    """
    changes = {key: value for key, value in asked.items() if before.get(key) != value}
    if not changes:
        raise BadQuestion("the quotas are as they were: there is nothing to change")
    return changes


def quota_command(entity: Entity, changes: Mapping[str, float | None]) -> str:
    """Return the `ottla quota set` and `unset` commands for these changes of an entity's quotas."""
    whose = [word for kind, name in entity.items() for word in _flag(kind, name)]
    texts = {key: None if value is None else quota_text(value) for key, value in changes.items()}
    return set_and_unset(["quota", *whose], [], texts)


def _flag(kind: str, name: str | None) -> list[str]:
    return [f"--default-{kind}"] if name is None else option(f"--{kind}", name)


# ------------------------------------------------------------ new


async def new_form(visit: Visit) -> Form:
    """Return the empty form for an entity (user, client id or address) and its quotas."""
    fields = []
    for kind in KINDS:
        label = {"ip": "address"}.get(kind, kind)
        fields.append(FormField(name=kind, label=label, hint="empty: any"))
        fields.append(
            FormField(name=_DEFAULT + kind, label=f"any {label} without a quota of its own", kind="check")
        )
    return Form("Set quotas", [*fields, *_quotas_fields({})])


def _quotas_fields(quotas: Mapping[str, float]) -> list[FormField]:
    hint = f"one a line: consumer_byte_rate=1048576. There are {KEYS}"
    return lines_fields(
        FIELD, "quotas", {key: quota_text(value) for key, value in sorted(quotas.items())}, hint
    )


async def _there(admin: Admin, entity: Entity) -> Mapping[str, float]:
    """Return the present quotas of exactly this entity; empty if there are none."""
    found = await admin.describe_quotas(entity)
    return next((quotas for whose, quotas in found if dict(whose) == dict(entity)), {})


async def plan_new(visit: Visit) -> Change:
    """Plan to set the quotas of a form; other quotas of the entity stay. The cluster checks the values."""
    entity = entity_of({name: text.strip() for name, text in visit.form.items()})
    before = await _there(visit.admin, entity)
    return await _plan(visit, entity, before, quotas_of(visit.form.get(FIELD, "")))


# ------------------------------------------------------------ alter


async def altering_form(visit: Visit) -> Form:
    """Return the form with the present quotas of an entity as lines `key=number`."""
    entity = entity_of(visit.query)
    return Form(
        f"Quotas of {entity_text(entity)}",
        _quotas_fields(await _there(visit.admin, entity)),
        "Remove a line to remove its quota.",
    )


async def plan_altering(visit: Visit) -> Change:
    """Plan to set and remove the quotas of an entity that the user edited in the form.

    The cluster checks the values.
    """
    entity = entity_of(visit.query)
    before = await _there(visit.admin, entity)
    return await _plan(visit, entity, before, edited(visit.form, FIELD, quotas_of, before))


async def _plan(
    visit: Visit, entity: Entity, before: Mapping[str, float], asked: Mapping[str, float | None]
) -> Change:
    changes = quota_changes(before, asked)
    await visit.admin.alter_quotas(entity, changes, validate_only=True)
    differences = _differences(before, changes)
    return Change(
        title=f"Change quotas of {entity_text(entity)}",
        differences=differences,
        carry_out=partial(_alter, entity, changes, differences),
        command=quota_command(entity, changes),
        is_validated=True,
    )


def _differences(before: Mapping[str, float], changes: Mapping[str, float | None]) -> list[Difference]:
    return [
        Difference(
            key,
            quota_text(before[key], grouped=True) if key in before else None,
            None if value is None else quota_text(value, grouped=True),
        )
        for key, value in changes.items()
    ]


async def _alter(
    entity: Entity, changes: Mapping[str, float | None], shown: Sequence[Difference], visit: Visit
) -> Done:
    check_as_shown(shown, _differences(await _there(visit.admin, entity), changes))
    await visit.admin.alter_quotas(entity, changes)
    return Done(f"changed for {entity_text(entity)}: {', '.join(changes)}", "/access")
