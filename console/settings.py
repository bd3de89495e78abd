"""Settings of topics and brokers in the console: table rows, form fields, and planned changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ..client.admin import Admin, ConfigEntry
from ..client.foreign_names import is_secret
from .area import BadQuestion, Difference, FormField, check_as_shown
from .key_values import edited, lines_fields, pairs_of, set_and_unset

HINT: Final = "one setting a line: retention.ms=86400000"
FIELD: Final = "settings"
"""The form field with settings."""


@dataclass(frozen=True, slots=True)
class SettingRow:
    """A setting of a topic or broker as a table row.

    `hidden_values` are the values from other sources that would apply without this one.
    """

    name: str
    value: str
    source: str
    is_default: bool
    hidden_values: str


def setting_rows(entries: Sequence[ConfigEntry], *, shows_all: bool) -> list[SettingRow]:
    """Return the table rows of a resource's settings by name; settings at their default only with `shows_all`.

    The values of secrets are hidden.
    """
    return [
        SettingRow(
            entry.name,
            "(secret)" if entry.is_sensitive else entry.value or "",
            entry.source,
            entry.is_default,
            "; ".join(f"{source}: {value or ''}" for _, value, source in entry.synonyms[1:])
            if not entry.is_sensitive
            else "",
        )
        for entry in sorted(entries, key=lambda entry: entry.name)
        if shows_all or not entry.is_default
    ]


def settings_fields(label: str, own: Mapping[str, str], hint: str = HINT) -> list[FormField]:
    """Return the form fields in which users edit `own`, the settings that a topic or broker has itself."""
    hint = f"{hint}. Remove a line to return its setting to the inherited or default value"
    return lines_fields(FIELD, label, own, hint)


def settings_of(text: str) -> dict[str, str]:
    """Parse the settings of a form, lines `key=value`.

    Raises BadQuestion, also for secrets, since forms are shown again and logged.
    """
    settings = pairs_of(text, "a setting is key=value")
    if (secret := next(filter(is_secret, settings), None)) is not None:
        raise BadQuestion(f"{secret} is a secret, which forms do not take")
    return settings


def without_secrets(text: str) -> str:
    """Return the lines of a settings form for a log: the values of secrets are replaced."""
    return "\n".join(
        f"{line.partition('=')[0]}=[hidden]" if is_secret(line.partition("=")[0]) else line
        for line in text.splitlines()
    )


def own_settings(entries: Sequence[ConfigEntry], source: str) -> dict[str, str]:
    """Return the settings that a topic or broker has itself: entries whose source is `source`. Secrets are left out."""
    return {
        entry.name: entry.value or ""
        for entry in sorted(entries, key=lambda entry: entry.name)
        if entry.source == source and not entry.is_sensitive
    }


@dataclass(frozen=True, slots=True)
class SettingsChange:
    """A planned change of a topic's or broker's settings.

    A value of None removes a setting, so that the inherited or default value applies.

    `kind` and `name` are the resource type and name, and `source` is the source of the resource's own settings.
    """

    kind: int
    name: str
    source: str
    changes: Mapping[str, str | None]

    async def differences(self, admin: Admin) -> list[Difference]:
        """Return the preview of this change: present and future values. Raises KafkaError."""
        entries = await admin.describe_configs(self.kind, self.name)
        return setting_differences(entries, self.changes, self.source)

    async def check(self, admin: Admin) -> None:
        """Ask the cluster whether it would accept the new values. Raises KafkaError if not."""
        await admin.alter_configs(self.kind, self.name, self.changes, validate_only=True)

    async def carry_out(self, admin: Admin, shown: Sequence[Difference]) -> None:
        """Change the settings in the cluster; other settings of the resource stay.

        Raises Outdated if the preview `shown` no longer holds, and KafkaError.
        """
        check_as_shown(shown, await self.differences(admin))
        await admin.alter_configs(self.kind, self.name, self.changes)


async def settings_asked(
    admin: Admin, kind: int, name: str, source: str, form: Mapping[str, str]
) -> SettingsChange:
    """Return the change of settings that a submitted form with `settings_fields` asks for.

    Raises BadQuestion for an invalid form or no change, and KafkaError.
    """
    own = own_settings(await admin.describe_configs(kind, name), source)
    asked = edited(form, FIELD, settings_of, own)
    changes = {key: value for key, value in asked.items() if own.get(key) != value}
    if not changes:
        raise BadQuestion("the settings are as they were: there is nothing to change")
    return SettingsChange(kind, name, source, changes)


def setting_differences(
    entries: Sequence[ConfigEntry], changes: Mapping[str, str | None], source: str
) -> list[Difference]:
    """Return the preview of a change of settings: the present and the future value of each changed setting, with its
    source."""
    by_name = {present.name: present for present in entries}
    found = []
    for key, value in changes.items():
        entry = by_name.get(key)
        now = None if entry is None else f"{entry.value or ''} ({entry.source})"
        beneath = (
            next((synonym for synonym in entry.synonyms if synonym[2] != source), None) if entry else None
        )
        then = f"{value} ({source})" if value is not None else "the inherited or default value"
        if value is None and beneath is not None:
            then = f"{beneath[1] or ''} ({beneath[2]})"
        found.append(Difference(key, now, then))
    return found


def config_command(kind: str, name: str, changes: Mapping[str, str | None]) -> str:
    """Return the `ottla config set` and `unset` commands for these changes of settings."""
    return set_and_unset(["config"], [kind, name], changes)
