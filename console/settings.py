"""Settings of topics and brokers in the console: table rows, and planned changes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ..client.admin import Admin, ConfigEntry
from ..client.foreign_names import is_secret
from ..protocol.settings.config_key import ConfigKey
from ..protocol.settings.config_keys import TOPIC_KEYS, node_key
from .area import BadQuestion, Difference, check_as_shown
from .key_values import pairs_of, set_and_unset

TOPIC: Final = "topic"
ALL_BROKERS: Final = "all brokers"
"""The sources of settings of a topic, and of all brokers."""


@dataclass(frozen=True, slots=True)
class SettingRow:
    """A setting of a topic or broker as a table row.

    `hidden_values` are the values from other sources that would apply without this one.
    """

    name: str
    value: str
    source: str
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
            "; ".join(f"{source}: {value or ''}" for _, value, source in entry.synonyms[1:])
            if not entry.is_sensitive
            else "",
        )
        for entry in sorted(entries, key=lambda entry: entry.name)
        if shows_all or not entry.is_default
    ]


def settings_of(text: str) -> dict[str, str]:
    """Parse the settings of a form, lines `key=value`.

    Raises BadQuestion, also for secrets.
    """
    settings = pairs_of(text, "a setting is key=value")
    refuse_secrets(settings)
    return settings


def refuse_secrets(keys: Iterable[str]) -> None:
    """Raise BadQuestion for the key of a secret, since forms are shown again and logged."""
    if (secret := next(filter(is_secret, keys), None)) is not None:
        raise BadQuestion(f"{secret} is a secret, which forms do not take")


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


def setting_differences(
    entries: Sequence[ConfigEntry], changes: Mapping[str, str | None], source: str
) -> list[Difference]:
    """Return the preview of a change of settings: the present and the future value of each changed setting, with its
    source.

    The value beneath a setting of all brokers may differ between brokers, by their files.
    """
    by_name = {present.name: present for present in entries}
    found = []
    for key, value in changes.items():
        entry = by_name.get(key)
        now = None if entry is None else f"{entry.value or ''} ({entry.source})"
        then = f"{value} ({source})" if value is not None else "the inherited or default value"
        if value is None and entry is not None:
            below = None if source == ALL_BROKERS else beneath(entry, {source}, known_key_of(source)(key))
            then = then if below is None else f"{below[0]} ({below[1]})"
        found.append(Difference(key, now, then))
    return found


def known_key_of(source: str) -> Callable[[str], ConfigKey | None]:
    """Return the function that finds the description of a key that may have settings from this source."""
    return TOPIC_KEYS.get if source == TOPIC else node_key


def beneath(entry: ConfigEntry, sources: Collection[str], key: ConfigKey | None) -> tuple[str, str] | None:
    """Return the value of a setting, and its source, that would hold without the values from `sources`.

    Brokers leave out some defaults, which `key` has. Returns None if the value is unknown.
    """
    if entry.source not in sources and entry.value is not None:
        return entry.value, entry.source
    for _, value, source in entry.synonyms:
        if source not in sources and value is not None:
            return value, source
    return None if key is None or key.default is None else (key.default, "default")


def config_command(kind: str, name: str, changes: Mapping[str, str | None]) -> str:
    """Return the `ottla config set` and `unset` commands for these changes of settings."""
    return set_and_unset(["config"], [kind, name], changes)
