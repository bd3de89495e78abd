"""Settings of a node as flat `key -> text`: from a YAML or .properties file, KAFKA_ variables, --set."""

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


def environment_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """What KAFKA_ variables say, as property names; names that are no broker property are left to the
    caller.
    """
    return {
        _property_of(name.removeprefix(ENVIRONMENT_PREFIX)): value
        for name, value in environ.items()
        if name.startswith(ENVIRONMENT_PREFIX) and name != ENVIRONMENT_PREFIX
    }


def _property_of(name: str) -> str:
    """Names of listeners and of mechanisms have other signs than dots: there, as in Kafka's image, three underscores
    are a dash and two an underscore."""
    if not name.startswith(LISTENER_VARIABLES):
        return name.lower().replace("_", ".")
    found = {"___": "-", "__": "_", "_": "."}
    return re.sub("___|__|_", lambda signs: found[signs[0]], name.lower())


def variable_of(key: str) -> str:
    """The environment variable of a property: log.segment.bytes is KAFKA_LOG_SEGMENT_BYTES."""
    if key.startswith(LISTENER_VARIABLES.lower().replace("_", ".")):
        key = key.replace("_", "__").replace("-", "___")
    return ENVIRONMENT_PREFIX + key.upper().replace(".", "_")


def parse_overrides(overrides: Iterable[str]) -> dict[str, str]:
    """`key=value` arguments as a mapping; the last one of a key wins. Raises UsageError."""
    settings: dict[str, str] = {}
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"--set takes key=value, not {override!r}")
        settings[key.strip()] = value.strip()
    return settings


def read_settings(path: Path) -> dict[str, str]:
    """The settings of one file: flat `key=value` when it ends in .properties, YAML otherwise."""
    text = read_text(path)
    return parse_properties(text, path) if path.suffix == ".properties" else parse_yaml(text, path)


def read_text(path: Path) -> str:
    """What a file holds. Raises CommandFailed."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise CommandFailed(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise CommandFailed(f"{path} is not a text file") from None


def parse_properties(text: str, path: Path) -> dict[str, str]:
    """As Java reads them: `key=value`, comments, lines that go on, and backslashes that are doubled to be meant."""
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
    """YAML whose keys are property names; nested mappings join with dots and lists with commas."""
    import yaml

    loader: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        document = yaml.compose(text, Loader=loader)
        if document is not None:
            _check_keys(document, "", path)
        tree = yaml.load(text, Loader=loader)
    except yaml.YAMLError as error:
        raise CommandFailed(f"{path} is not valid YAML: {_yaml_problem(error)}") from None
    settings: dict[str, str] = {}
    if tree is None:
        return settings
    if not isinstance(tree, dict):
        raise CommandFailed(f"{path}: expected 'key: value' lines at the top level")
    _flatten(tree, "", settings, path)
    return settings


def _yaml_problem(error: yaml.YAMLError) -> str:
    """What is wrong, and where. PyYAML's own text may show the line, which may be a secret."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "it cannot be read"
    return f"{problem} in line {mark.line + 1}, column {mark.column + 1}" if mark is not None else problem


def _flatten(tree: Mapping[object, object], prefix: str, settings: dict[str, str], path: Path) -> None:
    for name, value in tree.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict):
            _flatten(value, f"{key}.", settings, path)
        else:
            _put(settings, key, _text(value), path)


def _put(settings: dict[str, str], key: str, value: str, path: Path) -> None:
    if key in settings:
        raise CommandFailed(f"{path}: {key} stands there twice, once with dots and once as a mapping")
    settings[key] = value


def _check_keys(node: yaml.Node, prefix: str, path: Path) -> None:
    """Raises CommandFailed if a mapping has a key twice: YAML forbids that, and PyYAML would take the last one."""
    if isinstance(node.value, str):
        return
    lines: dict[str, int] = {}
    for child in node.value:
        if not isinstance(child, tuple):
            _check_keys(child, prefix, path)
            continue
        name, value = child
        key, line = f"{prefix}{name.value}", name.start_mark.line + 1
        if key in lines:
            raise _twice(path, key, lines[key], line)
        lines[key] = line
        _check_keys(value, f"{key}.", path)


def _twice(path: Path, key: str, first: int, second: int) -> CommandFailed:
    return CommandFailed(f"{path}: {key} stands in line {first} and again in line {second}: keep one of them")


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ",".join(_text(item) for item in value)
    return str(value)
