"""Quotas: the limits of clients by user, client id and address, and forms that change them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from ....client.admin import Admin
from ....client.admin.quotas import Entity, quota_text
from ....protocol.cluster.client_quotas import QUOTA_KEYS, entity_kind
from ...area import (
    BadQuestion,
    Change,
    Difference,
    Done,
    FieldRow,
    FieldTable,
    Form,
    FormField,
    Visit,
    check_as_shown,
)
from ...commands import option
from ...config_words import unit_of
from ...formats import byte_rate, link
from ...key_values import edited_rows, row_name, row_values, set_and_unset, shown_rows
from ...sorting import Column

KINDS: Final = ("user", "client-id", "ip")
QUOTA: Final = "quota"
"""The prefix of a row's form field: the key follows."""
_MEANINGS: Final[Mapping[str, str]] = {
    "producer_byte_rate": "Bytes that clients write to each broker.",
    "consumer_byte_rate": "Bytes that clients read from each broker.",
    "request_percentage": "Time of each broker for requests of the clients. 100 is all time of one thread.",
    "controller_mutation_rate": "Partitions that clients create and delete.",
    "connection_creation_rate": "New connections to each broker.",
}
_GROUPED: Final = re.compile(r"[0-9]{1,3}(,[0-9]{3})+(\.[0-9]+)?")
"""Numbers with separators of thousands. Other commas are none: 1,5 is not 15."""
_DEFAULT: Final = "default "
"""A prefix of a kind: the name of the field, and of the query parameter, for all entities without their own quota."""
_OF_CLIENTS: Final = ("user", "client-id")
_NAMED, _OTHERS, _ABSENT = "named", "others", "absent"
_PRECEDENCE: Final = (
    (_NAMED, _NAMED),
    (_NAMED, _OTHERS),
    (_NAMED, _ABSENT),
    (_OTHERS, _NAMED),
    (_OTHERS, _OTHERS),
    (_OTHERS, _ABSENT),
    (_ABSENT, _NAMED),
    (_ABSENT, _OTHERS),
)
"""Kinds of entities of clients, each as the kind of its user and of its client id: the first one with a quota counts,
as in Kafka."""


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


def limits_of(texts: Mapping[str, str | None]) -> dict[str, float | None]:
    """Parse the quotas of a form by key; None stays. Raises BadQuestion."""
    return {key: None if text is None else _limit(key, text) for key, text in texts.items()}


def _limit(key: str, value: str) -> float:
    if _GROUPED.fullmatch(value):
        value = value.replace(",", "")
    try:
        number = float(value.replace("_", ""))
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise BadQuestion(f"{key} is a number above 0, not {value[:80]!r}")
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


# ------------------------------------------------------------ rows


def quota_field_rows(
    entity: Entity, own: Mapping[str, float], found: Sequence[tuple[Entity, Mapping[str, float]]]
) -> list[FieldRow]:
    """Return a form's rows for the quotas of an entity, and for quotas that this console does not know.

    `own` are its present quotas, `found` the quotas of all entities.
    """
    kind = entity_kind(tuple(entity.items()))
    known = [key.name for key in QUOTA_KEYS.values() if key.kind == kind]
    return [_row(entity, key, own, found) for key in dict.fromkeys((*known, *sorted(own)))]


def _row(
    entity: Entity, key: str, own: Mapping[str, float], found: Sequence[tuple[Entity, Mapping[str, float]]]
) -> FieldRow:
    value = "" if key not in own else quota_text(own[key])
    unit = unit_of(key)
    return FieldRow(
        FormField(
            name=row_name(QUOTA, key),
            label=key,
            kind="number",
            value=value,
            hint=quota_words(key, own[key]) if key in own else "",
        ),
        f"{unit}, above 0" if unit else "a number above 0",
        inherited_words(entity, key, found),
        _MEANINGS.get(key, "This console has no description of this quota."),
    )


def quota_words(key: str, value: float) -> str:
    """Return a quota with separators, and bytes also in a larger unit: `1,048,576 (1.0 MiB/s)`."""
    text = quota_text(value, grouped=True)
    return f"{text} ({byte_rate(value)})" if unit_of(key) == "bytes/s" and value >= 1024 else text


def inherited_words(entity: Entity, key: str, found: Sequence[tuple[Entity, Mapping[str, float]]]) -> str:
    """Return the quota that applies to an entity without its own, and the entity that has it: `1,000 of user (any
    other)`."""
    limits = {frozenset(whose.items()): quotas for whose, quotas in found}
    for other in _less_specific(entity):
        if (value := limits.get(frozenset(other.items()), {}).get(key)) is not None:
            return f"{quota_words(key, value)} of {entity_text(other)}"
    return "no limit"


def _less_specific(entity: Entity) -> Iterator[Entity]:
    """Yield the entities whose quotas apply to an entity without its own, the most important first."""
    if "ip" in entity:
        if entity["ip"] is not None:
            yield {"ip": None}
        return
    own = tuple(_kind_of(entity, name) for name in _OF_CLIENTS)
    for kinds in _PRECEDENCE[_PRECEDENCE.index(own) + 1 :]:
        parts = {name: kind for name, kind in zip(_OF_CLIENTS, kinds, strict=True) if kind != _ABSENT}
        if all(kind == _OTHERS or entity.get(name) for name, kind in parts.items()):
            yield {name: None if kind == _OTHERS else entity[name] for name, kind in parts.items()}


def _kind_of(entity: Entity, kind: str) -> str:
    if kind not in entity:
        return _ABSENT
    return _OTHERS if entity[kind] is None else _NAMED


# ------------------------------------------------------------ new


async def new_form(visit: Visit) -> Form:
    """Return the empty form for an entity (user, client id or address) and its quotas."""
    is_of_address = visit.query.get("of") == "address"
    fields = []
    for kind in ("ip",) if is_of_address else ("user", "client-id"):
        label = {"ip": "address", "client-id": "client id"}.get(kind, kind)
        hint = "" if is_of_address else f"empty: whatever the {label} is"
        fields.append(FormField(name=kind, label=label, hint=hint))
        others = f"every {label} without quotas of its own, in place of a name"
        fields.append(FormField(name=_DEFAULT + kind, label=others, kind="check"))
    rows = quota_field_rows({"ip": None} if is_of_address else {"user": None}, {}, ())
    table = FieldTable("Quotas", [replace(row, otherwise="unchanged") for row in rows], what=QUOTA)
    links = {"Quotas of addresses": link(visit.path, of="address")}
    if is_of_address:
        links = {"Quotas of users and client ids": visit.path}
    return Form("Set quotas", fields, tables=[table], links=links)


async def _there(admin: Admin, entity: Entity) -> Mapping[str, float]:
    """Return the present quotas of exactly this entity; empty if there are none."""
    return _of_entity(entity, await admin.describe_quotas(entity))


def _of_entity(entity: Entity, found: Sequence[tuple[Entity, Mapping[str, float]]]) -> Mapping[str, float]:
    return next((quotas for whose, quotas in found if dict(whose) == dict(entity)), {})


async def plan_new(visit: Visit) -> Change:
    """Plan to set the quotas of a form; other quotas of the entity stay. The cluster checks the values."""
    entity = entity_of({name: text.strip() for name, text in visit.form.items()})
    before = await _there(visit.admin, entity)
    asked = {key: text for key, text in row_values(visit.form, QUOTA).items() if text}
    return await _plan(visit, entity, before, limits_of(asked))


# ------------------------------------------------------------ alter


async def altering_form(visit: Visit) -> Form:
    """Return the form with the present quotas of an entity."""
    entity = entity_of(visit.query)
    found = await visit.admin.describe_quotas()
    own = _of_entity(entity, found)
    return Form(
        f"Quotas of {entity_text(entity)}",
        [shown_rows(QUOTA, {key: quota_text(value) for key, value in own.items()})],
        "An empty value removes the quota.",
        [FieldTable("Quotas", quota_field_rows(entity, own, found), what=QUOTA)],
    )


async def plan_altering(visit: Visit) -> Change:
    """Plan to set and remove the quotas of an entity that the user edited in the form.

    The cluster checks the values.
    """
    entity = entity_of(visit.query)
    before = await _there(visit.admin, entity)
    texts = {key: quota_text(value) for key, value in before.items()}
    return await _plan(visit, entity, before, limits_of(edited_rows(visit.form, QUOTA, texts)))


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
