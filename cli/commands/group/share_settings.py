"""The settings of a share group that `ottla group describe` shows, each with the source of its value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ....client.admin import GROUP_RESOURCE, Admin, ConfigEntry
from ....protocol.errors import KafkaError
from ....protocol.settings.config_share import ORDERING
from ...run_client import refusal
from ...terminal.output import print_table
from ...terminal.text import note

ALWAYS_SHOWN: Final = (
    ORDERING,
    "share.record.lock.duration.ms",
    "share.delivery.count.limit",
    "errors.deadletterqueue.topic.name",
)
"""Settings that matter to readers even with their default. Others are shown if a value differs from the default."""
_OF_SHARE_GROUPS: Final = ("share.", "ottla.share.", "errors.deadletterqueue.")
"""Beginnings of the names of share groups' settings. Resources of groups also have settings of consumer groups."""

Settings = Sequence[ConfigEntry] | KafkaError
"""The shown settings of a group, or the error for a user who may not read them."""


async def settings_of(admin: Admin, group_id: str) -> Settings:
    """Return the settings of a share group to show. Clusters without a setting do not have it in their answer."""
    try:
        return chosen(await admin.describe_configs(GROUP_RESOURCE, group_id))
    except KafkaError as error:
        return error


def chosen(entries: Sequence[ConfigEntry]) -> list[ConfigEntry]:
    """Return the settings to show: `ALWAYS_SHOWN` first, then the others that differ from their default."""
    by_name = {entry.name: entry for entry in entries}
    always = [by_name[name] for name in ALWAYS_SHOWN if name in by_name]
    others = [
        entry
        for name, entry in sorted(by_name.items())
        if name not in ALWAYS_SHOWN and name.startswith(_OF_SHARE_GROUPS) and not entry.is_default
    ]
    return always + others


def print_settings(settings: Settings, *, is_wide: bool) -> None:
    """Print the settings as a table, or the reason for which they are not known."""
    if isinstance(settings, KafkaError):
        note(f"settings are not shown: {refusal(settings)}")
        return
    print_table(
        ("SETTING", "VALUE", "SOURCE"),
        [(entry.name, entry.value or "-", entry.source) for entry in settings],
        spare=("SOURCE",),
        wide=is_wide,
    )


def as_json(settings: Settings) -> dict[str, Any]:
    """Return the fields of a group in JSON: its settings, and the error if they are not known."""
    if isinstance(settings, KafkaError):
        return {"settings": None, "settings_error": refusal(settings)}
    return {
        "settings": [
            {"key": entry.name, "value": entry.value, "source": entry.source, "is_default": entry.is_default}
            for entry in settings
        ]
    }
