"""What may be changed of brokers: settings, of one or of all, and which folders new replicas stay out of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ....client.admin import BROKER_RESOURCE, ConfigEntry, LogDirDescription
from ....protocol.errors import KafkaError
from ...area import BadQuestion, Change, Difference, Done, Form, FormField, Visit
from ...formats import link
from ...settings import (
    FIELD,
    changes_asked,
    config_command,
    own_settings,
    setting_differences,
    settings_field,
)
from .page import broker_named

ALL: Final = "all"
"""In place of an id: the settings of all brokers, where a broker has none of its own."""
CORDONED: Final = "cordoned.log.dirs"


@dataclass(frozen=True, slots=True)
class Brokers:
    """Whose settings they are: of one broker, or with the empty name of all."""

    name: str
    title: str
    source: str
    address: str


async def _brokers(visit: Visit) -> Brokers:
    """Those that the address names. Raises BadQuestion and NotThere."""
    if visit.required("id") == ALL:
        return Brokers("", "all brokers", "all brokers", "/brokers")
    number, _ = await broker_named(visit)
    return Brokers(str(number), f"broker {number}", "broker", link("/brokers/broker", id=number))


# ------------------------------------------------------------ settings


async def settings_form(visit: Visit) -> Form:
    """The settings that were set while brokers ran, as text."""
    brokers = await _brokers(visit)
    own = own_settings(await visit.admin.describe_configs(BROKER_RESOURCE, brokers.name), brokers.source)
    label = f"settings of {brokers.title} that were set by command"
    return Form(
        f"Settings of {brokers.title}",
        (settings_field(label, own, "one setting a line: log.retention.ms=86400000"),),
        "What stands in a broker's file is changed there.",
    )


async def _asked(visit: Visit) -> tuple[Brokers, Sequence[ConfigEntry], dict[str, str | None]]:
    brokers = await _brokers(visit)
    entries = await visit.admin.describe_configs(BROKER_RESOURCE, brokers.name)
    return brokers, entries, changes_asked(entries, brokers.source, visit.form.get(FIELD, ""))


async def plan_settings(visit: Visit) -> Change:
    """The cluster checks the new values."""
    brokers, entries, changes = await _asked(visit)
    await visit.admin.alter_configs(BROKER_RESOURCE, brokers.name, changes, validate_only=True)
    return Change(
        title=f"Change settings of {brokers.title}",
        differences=setting_differences(entries, changes, brokers.source),
        command=config_command("broker", brokers.name or ALL, changes),
    )


async def alter_settings(visit: Visit) -> Done:
    """Change them."""
    brokers, _, changes = await _asked(visit)
    await visit.admin.alter_configs(BROKER_RESOURCE, brokers.name, changes)
    return Done(f"changed for {brokers.title}: {', '.join(changes)}", brokers.address)


# ------------------------------------------------------------ folders


async def folders_form(visit: Visit) -> Form:
    """A box for each folder."""
    number, _ = await broker_named(visit)
    folders = await _folders(visit, number)
    return Form(
        f"Folders of broker {number}",
        [
            FormField(
                name=field,
                label=f"new replicas stay out of {one.path}",
                kind="check",
                value="yes" if one.is_cordoned and not visit.form else "",
            )
            for field, one in folders.items()
        ],
        "Replicas that are there stay. A folder that is cordoned takes a new one only if all others are, too.",
    )


async def _folders(visit: Visit, number: int) -> Mapping[str, LogDirDescription]:
    """The folders of a broker by the fields of the form. Raises KafkaError."""
    told = (await visit.admin.describe_log_dirs([number]))[number]
    if isinstance(told, KafkaError):
        raise told
    return {f"folder {one.path}": one for one in told}


async def _cordoned(visit: Visit) -> tuple[int, list[Difference], dict[str, str | None]]:
    number, _ = await broker_named(visit)
    folders = await _folders(visit, number)
    wanted = {field: visit.form.get(field) == "yes" for field in folders}
    differences = [
        Difference(one.path, _word(is_cordoned=one.is_cordoned), _word(is_cordoned=wanted[field]))
        for field, one in folders.items()
        if one.is_cordoned != wanted[field]
    ]
    if not differences:
        raise BadQuestion("the folders are as they were: there is nothing to change")
    paths = [one.path for field, one in folders.items() if wanted[field]]
    return number, differences, {CORDONED: ",".join(paths) or None}


def _word(*, is_cordoned: bool) -> str:
    return "new replicas stay out" if is_cordoned else "takes new replicas"


async def plan_cordon(visit: Visit) -> Change:
    """The cluster checks the setting."""
    number, differences, changes = await _cordoned(visit)
    await visit.admin.alter_configs(BROKER_RESOURCE, str(number), changes, validate_only=True)
    return Change(
        title=f"Change folders of broker {number}",
        differences=differences,
        command=config_command("broker", str(number), changes),
    )


async def cordon(visit: Visit) -> Done:
    """Change it."""
    number, differences, changes = await _cordoned(visit)
    await visit.admin.alter_configs(BROKER_RESOURCE, str(number), changes)
    return Done(
        f"{len(differences)} folders of broker {number} were changed", link("/brokers/broker", id=number)
    )
