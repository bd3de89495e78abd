"""Settings of a node as flat `key -> text`, from a YAML or .properties file, KAFKA_ variables and --set."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..failures import CommandFailed, UsageError
from .java_properties import entries

if TYPE_CHECKING:
    import yaml

ENVIRONMENT_PREFIX = "KAFKA_"
LISTENER_VARIABLES = "LISTENER_NAME_"
_TAGS = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("str", "seq", "map"))
_BOOLEANS = {"yes": "true", "on": "true", "no": "false", "off": "false"}


def environment_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the settings in environment variables KAFKA_... by property name.

    The caller handles names that are no broker property.
    """
    return {
        _property_of(name.removeprefix(ENVIRONMENT_PREFIX)): value
        for name, value in environ.items()
        if name.startswith(ENVIRONMENT_PREFIX) and name != ENVIRONMENT_PREFIX
    }


def _property_of(name: str) -> str:
    """Return the property name for the name of a KAFKA_ variable, without its prefix.

    Names of listeners and mechanisms contain other signs than dots: there, as in Kafka's image, three underscores stand
    for a dash and two for an underscore.
    """
    if not name.startswith(LISTENER_VARIABLES):
        return name.lower().replace("_", ".")
    found = {"___": "-", "__": "_", "_": "."}
    return re.sub("___|__|_", lambda signs: found[signs[0]], name.lower())


def variable_of(key: str) -> str:
    """Return the environment variable of a property: log.segment.bytes is KAFKA_LOG_SEGMENT_BYTES."""
    if key.startswith(LISTENER_VARIABLES.lower().replace("_", ".")):
        key = key.replace("_", "__").replace("-", "___")
    return ENVIRONMENT_PREFIX + key.upper().replace(".", "_")


def parse_overrides(overrides: Iterable[str]) -> dict[str, str]:
    """Parse the `key=value` arguments of --set into a mapping; the last value of a key wins. Raises UsageError."""
    settings: dict[str, str] = {}
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"--set takes key=value, not {override!r}")
        settings[key.strip()] = value.strip()
    return settings


def read_settings(path: Path) -> dict[str, str]:
    """Read a node's settings from a file: `key=value` lines if it ends in .properties, YAML otherwise.

    Raises CommandFailed.
    """
    text = read_text(path)
    return parse_properties(text, path) if path.suffix == ".properties" else parse_yaml(text, path)


def read_text(path: Path) -> str:
    """Return the text of a UTF-8 file. Raises CommandFailed."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise CommandFailed(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise CommandFailed(f"{path} is not a text file") from None


def parse_properties(text: str, path: Path) -> dict[str, str]:
    """Parse `key=value` text as Java reads it: with comments, continued lines and backslash escapes.

    Raises CommandFailed.
    """
    settings: dict[str, str] = {}
    lines: dict[str, int] = {}
    try:
        for number, key, value in entries(text):
            if key in lines:
                raise _twice(path, key, lines[key], number)
            lines[key] = number
            settings[key] = value
    except ValueError as error:
        raise CommandFailed(f"{path}, {error}") from None
    return settings


def parse_yaml(text: str, path: Path) -> dict[str, str]:
    """Parse YAML whose keys are property names; nested mappings join with dots and lists with commas.

    Scalars stay the text that they are, as in a .properties file: `010` is 010, `1:30` is 1:30, and a rack named `no`
    is no. The declaration of a key decides whether its text is a number. A key that is declared to be a boolean takes
    an unquoted yes, no, on or off as true or false. Raises CommandFailed.
    """
    import yaml

    loader: type[Any] = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    try:
        document: Any = yaml.compose(text, Loader=loader)
    except yaml.YAMLError as error:
        raise CommandFailed(f"{path} is not valid YAML: {_yaml_problem(error)}") from None
    settings: dict[str, str] = {}
    if document is None or (document.id == "scalar" and not document.value):
        return settings
    _check_tag(document, path)
    if document.id != "mapping":
        raise CommandFailed(f"{path}: expected 'key: value' lines at the top level")
    _flatten(document, "", settings, path, ())
    return settings


def _yaml_problem(error: yaml.YAMLError) -> str:
    """Describe a YAML syntax error and its position. PyYAML's own text may show the line, which may be a secret."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "it cannot be read"
    return f"{problem} in line {mark.line + 1}, column {mark.column + 1}" if mark is not None else problem


def _flatten(node: Any, prefix: str, settings: dict[str, str], path: Path, within: tuple[Any, ...]) -> None:
    """Add the settings of a YAML mapping to `settings`, with keys joined to `prefix` by dots.

    `within` holds the enclosing mappings and lists, to which an alias must not refer.
    """
    for name, value in _entries(node, prefix, path, (*within, node)).items():
        key = f"{prefix}{name}"
        if value.id == "mapping":
            _flatten(value, f"{key}.", settings, path, (*within, node))
        elif value.id == "sequence":
            _put(settings, key, _joined(value, key, path, (*within, node)), path)
        else:
            _put(settings, key, _boolean_text(key, value), path)


def _entries(node: Any, prefix: str, path: Path, within: tuple[Any, ...]) -> dict[str, Any]:
    """Return the values of a YAML mapping by key, including merged ones (`<<`), which its own keys override.

    Raises CommandFailed if a key occurs twice: YAML forbids that, and PyYAML would take the last value.
    """
    merged: dict[str, Any] = {}
    own: dict[str, Any] = {}
    lines: dict[str, int] = {}
    for name, value in node.value:
        line = name.start_mark.line + 1
        _check_tag(name, path)
        _check_tag(value, path)
        if name.id != "scalar":
            raise CommandFailed(
                f"{path}: the key in line {line} is a list or a mapping, and has to be a name"
            )
        if any(value is around for around in within):
            raise CommandFailed(f"{path}: {prefix}{name.value} in line {line} refers to what it is part of")
        if name.value == "<<" and not name.style:
            for mapping in value.value if value.id == "sequence" else [value]:
                if mapping.id != "mapping" or any(mapping is around for around in within):
                    raise CommandFailed(f"{path}: << in line {line} merges mappings, and this is none")
                merged = _entries(mapping, prefix, path, (*within, mapping)) | merged
            continue
        if name.value in lines:
            raise _twice(path, f"{prefix}{name.value}", lines[name.value], line)
        lines[name.value] = line
        own[name.value] = value
    return merged | own


def _joined(node: Any, key: str, path: Path, within: tuple[Any, ...]) -> str:
    """Join the texts of a YAML list, and of nested lists, with commas."""
    texts = []
    for value in node.value:
        _check_tag(value, path)
        if value.id == "mapping":
            _entries(value, f"{key}.", path, within)
            raise CommandFailed(
                f"{path}: {key} in line {value.start_mark.line + 1} is a list, which has texts in it, and no mappings"
            )
        if any(value is around for around in (*within, node)):
            raise CommandFailed(f"{path}: {key} refers to what it is part of")
        texts.append(value.value if value.id == "scalar" else _joined(value, key, path, (*within, node)))
    return ",".join(texts)


def _boolean_text(key: str, node: Any) -> str:
    """Return the text of a YAML scalar. YAML 1.1's boolean words become true or false for a key declared as boolean."""
    text: str = node.value
    if node.style or text.lower() not in _BOOLEANS:  # A quoted word stays as it is.
        return text
    from ...protocol.settings.config_keys import ConfigType, node_key

    declared = node_key(key)
    is_boolean = declared is not None and declared.type is ConfigType.BOOLEAN
    return _BOOLEANS[text.lower()] if is_boolean else text


def _check_tag(node: Any, path: Path) -> None:
    """Raise CommandFailed for a YAML node with an explicit tag other than text, list or mapping."""
    if node.tag not in _TAGS:
        raise CommandFailed(
            f"{path} is not valid YAML: the tag in line {node.start_mark.line + 1} is not taken, as values are texts"
        )


def _put(settings: dict[str, str], key: str, value: str, path: Path) -> None:
    if key in settings:
        raise CommandFailed(f"{path}: {key} stands there twice, once with dots and once as a mapping")
    settings[key] = value


def _twice(path: Path, key: str, first: int, second: int) -> CommandFailed:
    return CommandFailed(f"{path}: {key} stands in line {first} and again in line {second}: keep one of them")
