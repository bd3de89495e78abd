"""Forms for settings of topics and brokers: a row for each key, or a text area with lines `key=value`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from ..client.admin import BROKER_RESOURCE, CONFIG_SOURCES, Admin, ConfigEntry
from ..protocol.errors import KafkaError
from ..protocol.settings.config_chain import ConfigSource, topic_defaults
from ..protocol.settings.config_key import ConfigKey, ConfigType
from ..protocol.settings.config_keys import TOPIC_KEYS
from .area import BadQuestion, FieldRow, FieldTable, Form, FormField, Visit
from .config_words import facts_of, in_unit
from .formats import link
from .key_values import edited, edited_rows, lines_fields, row_name, row_values, shown_rows
from .settings import TOPIC, SettingsChange, beneath, known_key_of, own_settings, refuse_secrets, settings_of

FIELD: Final = "settings"
"""The form field with settings as lines."""
HINT: Final = "one setting a line: retention.ms=86400000"
_AS, _LINES = "as", "lines"
"""The query parameter, and its value, for a form with a text area."""
SET: Final = "set"
"""The prefix of a row's field: the key follows."""
_SOURCES: Final = {text: ConfigSource(number) for number, text in CONFIG_SOURCES.items()}
SET_HERE: Final = "Set here"
OTHERS: Final = "Inherited and default values"
"""The headings of the tables of settings."""
_RULE: Final = "An empty value leaves the setting to its inherited or default value."


async def settings_form_of(
    visit: Visit, title: str, kind: int, name: str, source: str, *, text: str = ""
) -> Form:
    """Return the form for the settings that a topic or broker has itself, whose source is `source`.

    `kind` and `name` are the resource type and name. Raises KafkaError.
    """
    entries = await visit.admin.describe_configs(kind, name)
    own = own_settings(entries, source)
    if _is_as_lines(visit):
        hint = f"{HINT}. Remove a line to return its setting to the inherited or default value"
        fields = lines_fields(FIELD, "settings", own, hint)
        return Form(title, fields, text, links=other_form(visit))
    sources = {source}
    if kind == BROKER_RESOURCE and not name:
        entries, sources = [*entries, *await _of_any_broker(visit.admin)], {source, "broker"}
    rows = setting_rows_of(entries, own, known_key_of(source), sources)
    set_here = [row for row in rows if row.field.label in own]
    others = [row for row in rows if row.field.label not in own]
    tables = [FieldTable(heading, some) for heading, some in ((SET_HERE, set_here), (OTHERS, others)) if some]
    return Form(
        title, [shown_rows(SET, own)], " ".join(filter(None, (text, _RULE))), tables, other_form(visit)
    )


async def creation_settings(visit: Visit) -> tuple[Sequence[FormField], Sequence[FieldTable]]:
    """Return the fields and tables for the settings of a topic that does not exist yet."""
    if _is_as_lines(visit):
        return [FormField(name=FIELD, label="settings", kind="lines", hint=HINT)], ()
    defaults = topic_defaults(_layers(await _or_nothing(visit.admin)))
    entries = [
        ConfigEntry(key.name, defaults.get(key.name, key.default), "default", True, False, False)
        for key in TOPIC_KEYS.values()
    ]
    rows = setting_rows_of(entries, {}, known_key_of(TOPIC), set())
    is_open = any(row_values(visit.form, SET).values())
    return (), [FieldTable(f"Settings: {len(rows)} keys, all optional", rows, is_open)]


def _is_as_lines(visit: Visit) -> bool:
    return visit.query.get(_AS) == _LINES or FIELD in visit.form


def other_form(visit: Visit) -> Mapping[str, str]:
    """Return the link from a form with rows to the form with lines, or back."""
    others = {name: value for name, value in visit.query.items() if name != _AS}
    if _is_as_lines(visit):
        return {"Edit in a table": link(visit.path, **others)}
    return {"Edit as lines": link(visit.path, **others, **{_AS: _LINES})}


# ------------------------------------------------------------ rows


def setting_rows_of(
    entries: Sequence[ConfigEntry],
    own: Mapping[str, str],
    known_key: Callable[[str], ConfigKey | None],
    sources: Collection[str],
) -> list[FieldRow]:
    """Return a form's rows for all settings that a resource may have, by name.

    `own` are its own settings. `known_key` returns the description of a key, and `sources` are the sources that an
    empty value removes.
    Secrets and settings that cannot be changed while brokers run have no row.
    """
    changeable = {entry.name: entry for entry in entries if not entry.is_sensitive and not entry.read_only}
    return [
        _row(name, own.get(name), changeable.get(name), known_key(name), sources)
        for name in sorted({*changeable, *own})
    ]


def _row(
    name: str, own: str | None, entry: ConfigEntry | None, key: ConfigKey | None, sources: Collection[str]
) -> FieldRow:
    below = None if entry is None else beneath(entry, sources, key)
    value, source = below if below is not None else (None, "")
    otherwise = "not set" if value is None else f"{in_unit(name, value)}, {source}"
    return FieldRow(
        _field(name, own or "", value, key),
        "" if key is None else facts_of(key),
        otherwise,
        "This console has no description of this setting." if key is None else key.doc,
    )


def _field(name: str, own: str, inherited: str | None, key: ConfigKey | None) -> FormField:
    in_words = in_unit(name, own) if own else ""
    hint = in_words if in_words != own else ""
    choices: Sequence[str] = ()
    if key is not None and key.type is ConfigType.BOOLEAN:
        choices = ("true", "false")
    elif key is not None and key.type is ConfigType.STRING:
        choices = key.allowed
    if choices and own in ("", *choices):
        labels = {"": "not set here" if inherited is None else f"not set here: {inherited}"}
        return FormField(
            name=row_name(SET, name),
            label=name,
            kind="choice",
            value=own,
            choices=("", *choices),
            labels=labels,
        )
    is_number = key is not None and key.type in (ConfigType.INT, ConfigType.LONG)
    return FormField(
        name=row_name(SET, name),
        label=name,
        kind="number" if is_number else "text",
        value=own,
        hint=hint,
        placeholder=inherited or "",
        suggestions=_suggested(key),
    )


def _suggested(key: ConfigKey | None) -> Sequence[str]:
    """Return the values of a list that a browser offers: each allowed item, and all items."""
    if key is None or key.type is not ConfigType.LIST or not key.allowed:
        return ()
    return (*key.allowed, ",".join(key.allowed))


async def _of_any_broker(admin: Admin) -> list[ConfigEntry]:
    """Return the settings of a live broker, which shows the keys that all brokers may have. Raises KafkaError."""
    brokers = (await admin.describe_cluster()).brokers
    return await admin.describe_configs(BROKER_RESOURCE, str(brokers[0].id)) if brokers else []


async def _or_nothing(admin: Admin) -> list[ConfigEntry]:
    try:
        return await _of_any_broker(admin)
    except KafkaError:  # A user may create topics without the right to see settings of brokers.
        return []


def _layers(entries: Iterable[ConfigEntry]) -> list[tuple[ConfigSource, Mapping[str, str]]]:
    """Return the settings of a broker by their source, the most important source first."""
    found: dict[ConfigSource, dict[str, str]] = {}
    for entry in entries:
        for name, value, source in entry.synonyms:
            if value is not None and source in _SOURCES:
                found.setdefault(_SOURCES[source], {})[name] = value
    return sorted(found.items())


# ------------------------------------------------------------ submitted forms


def created_settings(form: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that a submitted form gives to a new topic. Raises BadQuestion."""
    if FIELD in form:
        return settings_of(form[FIELD])
    settings = {key: value for key, value in row_values(form, SET).items() if value}
    refuse_secrets(settings)
    return settings


async def settings_asked(
    admin: Admin, kind: int, name: str, source: str, form: Mapping[str, str]
) -> SettingsChange:
    """Return the change of settings that a submitted form asks for.

    Raises BadQuestion for an invalid form or no change, and KafkaError.
    """
    own = own_settings(await admin.describe_configs(kind, name), source)
    asked = edited(form, FIELD, settings_of, own) if FIELD in form else edited_rows(form, SET, own)
    refuse_secrets(asked)
    changes = {key: value for key, value in asked.items() if own.get(key) != value}
    if not changes:
        raise BadQuestion("the settings are as they were: there is nothing to change")
    return SettingsChange(kind, name, source, changes)
