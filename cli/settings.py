"""Settings of a node as flat ``key -> text``: from a YAML or .properties file, KAFKA_ variables, --set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from .failures import CommandFailed, UsageError

ENVIRONMENT_PREFIX = "KAFKA_"


def environment_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """What KAFKA_ variables say, as property names; names that are no broker property are left to the
    caller.
    """
    return {
        name.removeprefix(ENVIRONMENT_PREFIX).lower().replace("_", "."): value
        for name, value in environ.items()
        if name.startswith(ENVIRONMENT_PREFIX) and name != ENVIRONMENT_PREFIX
    }


def variable_of(key: str) -> str:
    """The environment variable of a property: log.segment.bytes is KAFKA_LOG_SEGMENT_BYTES."""
    return ENVIRONMENT_PREFIX + key.upper().replace(".", "_")


def parse_overrides(overrides: Iterable[str]) -> dict[str, str]:
    """``key=value`` arguments as a mapping; the last one of a key wins. Raises UsageError."""
    settings: dict[str, str] = {}
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"--set takes key=value, not {override!r}")
        settings[key.strip()] = value.strip()
    return settings


def read_settings(path: Path) -> dict[str, str]:
    """The settings of one file: flat ``key=value`` when it ends in .properties, YAML otherwise."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise CommandFailed(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise CommandFailed(f"{path} is not a text file") from None
    return parse_properties(text, path) if path.suffix == ".properties" else parse_yaml(text, path)


def parse_properties(text: str, path: Path) -> dict[str, str]:
    """Java-style properties: ``key=value``, ``#`` and ``!`` comments, a trailing backslash continues a
    line.
    """
    settings: dict[str, str] = {}
    pending = ""
    for number, raw in enumerate(text.splitlines(), 1):
        line = pending + raw.strip()
        if not line or line[0] in "#!":
            continue
        if line.endswith("\\"):
            pending = line[:-1]
            continue
        pending = ""
        key, equals, value = line.partition("=")
        if not equals:
            key, equals, value = line.partition(":")
        if not equals or not key.strip():
            raise CommandFailed(f"{path}, line {number}: expected key=value, found {raw.strip()!r}")
        _put(settings, key.strip(), value.strip(), path)
    return settings


def parse_yaml(text: str, path: Path) -> dict[str, str]:
    """YAML whose keys are property names; nested mappings join with dots and lists with commas."""
    import yaml

    try:
        tree = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise CommandFailed(f"{path} is not valid YAML: {' '.join(str(error).split())}") from None
    settings: dict[str, str] = {}
    if tree is None:
        return settings
    if not isinstance(tree, dict):
        raise CommandFailed(f"{path}: expected 'key: value' lines at the top level")
    _flatten(tree, "", settings, path)
    return settings


def _flatten(tree: Mapping[object, object], prefix: str, settings: dict[str, str], path: Path) -> None:
    for name, value in tree.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict):
            _flatten(value, f"{key}.", settings, path)
        else:
            _put(settings, key, _text(value), path)


def _put(settings: dict[str, str], key: str, value: str, path: Path) -> None:
    if key in settings:
        raise CommandFailed(f"{path}: {key} stands there twice")
    settings[key] = value


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ",".join(_text(item) for item in value)
    return str(value)
