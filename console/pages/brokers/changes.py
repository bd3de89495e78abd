"""Changes of brokers: settings of one or all brokers, and the cordoning of data folders, which then get no new
replicas."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from ....client.admin import BROKER_RESOURCE, Admin, LogDirDescription
from ....protocol.errors import KafkaError
from ...area import BadQuestion, Change, Difference, Done, Form, FormField, Outdated, Visit
from ...formats import link
from ...setting_forms import settings_asked, settings_form_of
from ...settings import SettingsChange, config_command
from .page import broker_named

ALL: Final = "all"
"""The id that stands for the settings of all brokers."""
CORDONED: Final = "cordoned.log.dirs"
SOURCE: Final = "broker"
"""The source of settings that belong to one broker."""
_SHOWN: Final = "cordoned as shown"
"""The field with the folders that were cordoned when the form was shown, one a line."""


@dataclass(frozen=True, slots=True)
class Brokers:
    """The owner of dynamic broker settings: one broker, or all brokers if `name` is empty.

    `source` is the settings' source, `address` the page that shows them.
    """

    name: str
    title: str
    source: str
    address: str


async def _brokers(visit: Visit) -> Brokers:
    """Return the owner of settings that the page's query names: a broker id, or `all`.

    Raises BadQuestion and NotThere.
    """
    if visit.required("id") == ALL:
        return Brokers("", "all brokers", "all brokers", "/brokers")
    number = (await broker_named(visit)).id
    return Brokers(str(number), f"broker {number}", SOURCE, link("/brokers/broker", id=number))


# ------------------------------------------------------------ settings


async def settings_form(visit: Visit) -> Form:
    """Return the form with a row for each setting that a broker, or all brokers, may have while they run."""
    brokers = await _brokers(visit)
    return await settings_form_of(
        visit,
        f"Settings of {brokers.title}",
        BROKER_RESOURCE,
        brokers.name,
        brokers.source,
        text="Settings in a broker's file must be changed in the file.",
    )


async def plan_settings(visit: Visit) -> Change:
    """Plan a change of broker settings. The cluster checks the new values."""
    brokers = await _brokers(visit)
    change = await settings_asked(visit.admin, BROKER_RESOURCE, brokers.name, brokers.source, visit.form)
    await change.check(visit.admin)
    differences = await change.differences(visit.admin)
    return Change(
        title=f"Change settings of {brokers.title}",
        differences=differences,
        carry_out=partial(_alter_settings, brokers, change, differences),
        command=config_command("broker", brokers.name or ALL, change.changes),
        is_validated=True,
    )


async def _alter_settings(
    brokers: Brokers, change: SettingsChange, shown: Sequence[Difference], visit: Visit
) -> Done:
    await change.carry_out(visit.admin, shown)
    return Done(f"changed for {brokers.title}: {', '.join(change.changes)}", brokers.address)


# ------------------------------------------------------------ folders


async def folders_form(visit: Visit) -> Form:
    """Return the form with a check box for each data folder of a broker: checked if the folder gets no new replicas."""
    number = (await broker_named(visit)).id
    folders = await _folders(visit.admin, number)
    boxes = [
        FormField(
            name=field,
            label=f"no new replicas in {folder.path}",
            kind="check",
            value="yes" if folder.is_cordoned and not visit.form else "",
        )
        for field, folder in folders.items()
    ]
    cordoned = "\n".join(field for field, folder in folders.items() if folder.is_cordoned)
    return Form(
        f"Folders of broker {number}",
        [*boxes, FormField(name=_SHOWN, label="", kind="hidden", value=cordoned)],
        "Existing replicas stay. A cordoned folder gets new replicas only if all folders are cordoned.",
    )


async def _folders(admin: Admin, number: int) -> Mapping[str, LogDirDescription]:
    """Return the data folders of a broker, by the names of their check boxes in the form. Raises KafkaError."""
    answer = (await admin.describe_log_dirs([number]))[number]
    if isinstance(answer, KafkaError):
        raise answer
    return {f"folder {folder.path}": folder for folder in answer}


def _wanted(form: Mapping[str, str], folders: Mapping[str, LogDirDescription]) -> set[str]:
    """Return the check boxes of the data folders to cordon: the folders cordoned now, changed by the boxes that the
    user changed."""
    there = {field for field, folder in folders.items() if folder.is_cordoned}
    boxes = {field for field in folders if form.get(field) == "yes"}
    shown = set(form[_SHOWN].splitlines()) if _SHOWN in form else there
    return (there | (boxes - shown)) - (shown - boxes)


def _word(*, is_cordoned: bool) -> str:
    return "no new replicas" if is_cordoned else "takes new replicas"


async def plan_cordon(visit: Visit) -> Change:
    """Plan to cordon or uncordon data folders of a broker. The cluster checks the setting."""
    number = (await broker_named(visit)).id
    folders = await _folders(visit.admin, number)
    wanted = _wanted(visit.form, folders)
    differences = [
        Difference(folder.path, _word(is_cordoned=folder.is_cordoned), _word(is_cordoned=field in wanted))
        for field, folder in folders.items()
        if folder.is_cordoned != (field in wanted)
    ]
    if not differences:
        raise BadQuestion("the folders are as they were: there is nothing to change")
    changes = await _setting(
        visit.admin, number, [folder.path for field, folder in folders.items() if field in wanted]
    )
    await visit.admin.alter_configs(BROKER_RESOURCE, str(number), changes, validate_only=True)
    return Change(
        title=f"Change folders of broker {number}",
        differences=differences,
        carry_out=partial(_cordon, number, _cordoned(folders), changes, len(differences)),
        command=config_command("broker", str(number), changes),
        is_validated=True,
    )


async def _setting(admin: Admin, number: int, paths: Sequence[str]) -> dict[str, str | None]:
    """Return the change of `cordoned.log.dirs` that cordons exactly the folders `paths`.

    Without folders the setting is removed, unless another source would then cordon folders.
    """
    if paths:
        return {CORDONED: ",".join(paths)}
    entries = await admin.describe_configs(BROKER_RESOURCE, str(number))
    others = [
        value
        for entry in entries
        if entry.name == CORDONED
        for name, value, source in entry.synonyms
        if name == CORDONED and source != SOURCE
    ]
    return {CORDONED: "" if any(others) else None}


def _cordoned(folders: Mapping[str, LogDirDescription]) -> set[str]:
    return {folder.path for folder in folders.values() if folder.is_cordoned}


async def _cordon(
    number: int, shown: Collection[str], changes: Mapping[str, str | None], count: int, visit: Visit
) -> Done:
    """Set the list of cordoned data folders of a broker.

    Raises Outdated if the list differs from the one that was shown.
    """
    now = _cordoned(await _folders(visit.admin, number))
    if now != shown:
        paths = ", ".join(sorted(now ^ set(shown)))
        raise Outdated(f"broker {number}: somebody else has changed {paths}")
    await visit.admin.alter_configs(BROKER_RESOURCE, str(number), changes)
    return Done(f"{count} folders of broker {number} were changed", link("/brokers/broker", id=number))
