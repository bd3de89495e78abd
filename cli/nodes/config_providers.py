"""References in settings to values in other places: `${env:NAME}`, `${file:PATH:KEY}` and `${dir:PATH:FILE}`.

`config.providers` lists the providers that references may name, with Apache Kafka's classes (KIP-297, KIP-421,
KIP-887):

- EnvVarConfigProvider: an environment variable; `param.allowlist.pattern` must match its whole name
- FileConfigProvider: the value of a key in a properties file
- DirectoryConfigProvider: the content of a file, without a line break at its end

`param.allowed.paths` limits the files that are read, after symbolic links. One difference from Kafka is deliberate: a
reference without a value ends the start, where Kafka uses the text of the reference as the value. The value of a
reference is not searched for further references. Only the files and the environment of a process may contain
references: settings that arrive over the network never pass through this module.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from ...protocol.nearest import nearest
from ...protocol.session.node_secrets import others_may_read
from ..failures import CommandFailed
from .settings import parse_properties, read_text

PROVIDERS: Final = "config.providers"
_REFERENCE = re.compile(r"\$\{([^}:]*):(?:([^}:]*):)?([^}]*)\}")
_PACKAGE = "org.apache.kafka.common.config.provider."
_ENV, _FILE, _DIRECTORY = (f"{_PACKAGE}{name}ConfigProvider" for name in ("EnvVar", "File", "Directory"))
_CLASS_BY_NAME: Final = {"env": _ENV, "file": _FILE, "dir": _DIRECTORY}
_PARAMETERS: Final = {
    _ENV: ("allowlist.pattern",),
    _FILE: ("allowed.paths",),
    _DIRECTORY: ("allowed.paths",),
}
Warn = Callable[[str], None]
ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class ResolvedSettings:
    """A node's settings in which each `${provider:...}` reference is replaced by its value."""

    values: Mapping[str, str] = field(repr=False)
    references: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The original text of the settings that have a reference. The text may also contain a secret."""


def has_reference(text: str) -> bool:
    """Return whether a setting's value contains a reference such as `${env:NAME}`."""
    return _REFERENCE.search(text) is not None


def is_of_providers(name: str) -> bool:
    """Return whether a setting configures the providers of references (`config.providers`)."""
    return name == PROVIDERS or name.startswith(f"{PROVIDERS}.")


def resolve(settings: Mapping[str, str], environ: Mapping[str, str], warn: Warn) -> ResolvedSettings:
    """Replace references such as `${env:NAME}` in settings by their values, and remove the settings of providers.

    `warn` is called with warnings. Raises CommandFailed that names the setting and the file or variable, and no value.
    """
    providers = _providers(settings, environ, warn)
    values: dict[str, str] = {}
    references: dict[str, str] = {}
    for name, text in settings.items():
        if is_of_providers(name):
            continue
        values[name] = _REFERENCE.sub(partial(_value, providers, name), text)
        if has_reference(text):
            references[name] = text
    return ResolvedSettings(values, references)


class _NoValue(Exception):
    """A reference has no value; the message is the reason."""


_Provider = Callable[[str, str], str]
"""A function that returns the value of a path, which may be empty, and a key. Raises _NoValue."""


def _value(providers: Mapping[str, _Provider], name: str, found: re.Match[str]) -> str:
    provider, path, key = found[1].strip(), (found[2] or "").strip(), found[3].strip()
    try:
        if provider not in providers:
            raise _NoValue(f"{PROVIDERS} has no {provider!r}; it has {', '.join(providers) or 'none'}")
        return providers[provider](path, key)
    except _NoValue as problem:
        raise CommandFailed(f"{name}: {found[0]} gives no value: {problem}") from None


def _providers(settings: Mapping[str, str], environ: Mapping[str, str], warn: Warn) -> dict[str, _Provider]:
    names = [name for each in settings.get(PROVIDERS, "").split(",") if (name := each.strip())]
    known = {PROVIDERS}
    found: dict[str, _Provider] = {}
    for name in names:
        prefix = f"{PROVIDERS}.{name}"
        kind = settings.get(f"{prefix}.class", "").strip() or _CLASS_BY_NAME.get(name, "")
        if kind not in _PARAMETERS:
            problem = f"is {kind!r}" if kind else "is missing"
            raise CommandFailed(f"{prefix}.class {problem}: there are {', '.join(_PARAMETERS)}")
        parameters = {each: f"{prefix}.param.{each}" for each in _PARAMETERS[kind]}
        known |= {f"{prefix}.class", *parameters.values()}
        given = {each: settings[key].strip() for each, key in parameters.items() if key in settings}
        if kind == _ENV:
            found[name] = _of_environment(environ, given.get("allowlist.pattern"), prefix)
        else:
            allowed = _allowed_paths(given.get("allowed.paths"), prefix)
            found[name] = (_of_file if kind == _FILE else _of_directory)(allowed, warn)
    _check_known(settings, known)
    return found


def _check_known(settings: Mapping[str, str], known: set[str]) -> None:
    for name in settings:
        if is_of_providers(name) and name not in known:
            meant = nearest(name, known)
            hint = f"did you mean {meant}?" if meant else f"{PROVIDERS} is {settings.get(PROVIDERS, '')!r}"
            raise CommandFailed(f"Unknown configuration: {name}: {hint}")


def _of_environment(environ: Mapping[str, str], pattern: str | None, prefix: str) -> _Provider:
    try:
        allowed = re.compile(pattern) if pattern is not None else None
    except re.error as error:
        raise CommandFailed(f"{prefix}.param.allowlist.pattern is no regular expression: {error}") from None

    def value(path: str, key: str) -> str:
        if path:
            raise _NoValue("a variable of the environment has no path")
        if allowed is not None and not allowed.fullmatch(key):
            raise _NoValue(f"{prefix}.param.allowlist.pattern does not match {key!r}")
        if key not in environ:
            raise _NoValue(f"there is no variable {key!r} in the environment")
        return environ[key]

    return value


def _allowed_paths(text: str | None, prefix: str) -> tuple[Path, ...] | None:
    """Return the folders and files that a provider may read, with symbolic links resolved; None allows all."""
    if text is None:
        return None
    paths = [Path(each.strip()) for each in text.split(",") if each.strip()]
    for path in paths:
        if not path.is_absolute() or not path.exists():
            raise CommandFailed(f"{prefix}.param.allowed.paths: {path} is no absolute path of what exists")
    return tuple(path.resolve() for path in paths)


def _of_file(allowed: tuple[Path, ...] | None, warn: Warn) -> _Provider:
    files: dict[Path, Mapping[str, str]] = {}

    def value(path: str, key: str) -> str:
        if not path:
            raise _NoValue("it has the form ${file:PATH:KEY}")
        file = _allowed(Path(path), allowed)
        if file not in files:
            files[file] = _told(lambda: parse_properties(_read(file, warn), Path(path)))
        if key not in files[file]:
            raise _NoValue(f"{path} has no key {key!r}")
        return files[file][key]

    return value


def _of_directory(allowed: tuple[Path, ...] | None, warn: Warn) -> _Provider:
    def value(path: str, key: str) -> str:
        if not path or not key or Path(key).name != key:
            raise _NoValue("it has the form ${dir:PATH:FILE}, and FILE is the name of a file in PATH")
        file = _allowed(Path(path) / key, allowed)
        return _told(lambda: _read(file, warn)).removesuffix("\n").removesuffix("\r")

    return value


def _allowed(path: Path, allowed: tuple[Path, ...] | None) -> Path:
    """Return the path of a file that a reference names, with symbolic links resolved.

    Raises _NoValue if it is missing or not allowed.
    """
    if not path.is_absolute():
        raise _NoValue(f"{path} is no absolute path")
    try:
        file = path.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "symbolic links in a circle"
        raise _NoValue(f"cannot read {path}: {reason}") from None
    if allowed is not None and not any(file.is_relative_to(each) for each in allowed):
        raise _NoValue(f"{file} is not within {', '.join(map(str, allowed)) or 'any allowed path'}")
    return file


def _told(read: Callable[[], ResultT]) -> ResultT:
    """Call `read` and return its value; CommandFailed becomes _NoValue."""
    try:
        return read()
    except CommandFailed as error:
        raise _NoValue(str(error)) from None


def _read(file: Path, warn: Warn) -> str:
    text = read_text(file)
    if others_may_read(file):
        warn(f"{file} holds secrets, and every user of this machine may read it: chmod 600 {file}")
    return text
