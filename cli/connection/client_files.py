"""The files with which one user's clients connect to a cluster, for each kind of client.

    FOLDER/profiles.json     a profile of `ottla` commands: OTTLA_CONFIG_DIR=FOLDER
    FOLDER/NAME.properties   the same options for Java's clients and tools
    FOLDER/NAME.conf         the same options by librdkafka's names: kcat -F

Only the owner can read them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..files import write_atomically
from ..nodes.java_properties import written
from .profiles import FILE as PROFILES_FILE
from .profiles import Profiles, save

_SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
_SAME_NAME = ("bootstrap.servers", "security.protocol", "sasl.mechanism")
_STORES = {
    "ssl.ca.location": ("ssl.truststore", "location"),
    "ssl.ca.pem": ("ssl.truststore", "certificates"),
    "ssl.certificate.location": ("ssl.keystore", "location"),
}


@dataclass(frozen=True, slots=True)
class ClientFiles:
    """The paths of the files for the clients of the user `name`, in one folder."""

    folder: Path
    name: str

    @property
    def password_file(self) -> Path:
        """The path of the file whose first line is the user's password."""
        return self.folder / f"{self.name}.password"

    @property
    def java_file(self) -> Path:
        """The path of the properties file for Java clients."""
        return self.folder / f"{self.name}.properties"

    @property
    def librdkafka_file(self) -> Path:
        """The path of the properties file for librdkafka."""
        return self.folder / f"{self.name}.conf"

    @property
    def profiles_file(self) -> Path:
        """The path of the file with the profile for `ottla` commands."""
        return self.folder / PROFILES_FILE

    def all(self) -> Iterator[Path]:
        """Yield the paths of all files."""
        yield from (self.password_file, self.profiles_file, self.java_file, self.librdkafka_file)

    def write(self, options: Mapping[str, str], *, librdkafka: Mapping[str, str] | None = None) -> None:
        """Write the files with options by librdkafka's names. The file of the password is left out.

        `librdkafka` are the options in the file for librdkafka, whose lines cannot have a certificate.
        """
        save(Profiles(self.name, {self.name: dict(options)}), self.profiles_file)
        write_atomically(self.java_file, written(java_options(options)), mode=0o600)
        write_atomically(
            self.librdkafka_file, _lines(options if librdkafka is None else librdkafka), mode=0o600
        )


def java_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of a Java client for options by librdkafka's names. A login is by SCRAM."""
    found = {name: options[name] for name in _SAME_NAME if name in options}
    for name, (store, kind) in _STORES.items():
        if name in options:
            found |= {f"{store}.type": "PEM", f"{store}.{kind}": options[name]}
    if "sasl.username" in options:
        user, password = (_quoted(options[name]) for name in ("sasl.username", "sasl.password"))
        found["sasl.jaas.config"] = f"{_SCRAM_MODULE} required username={user} password={password};"
    return found


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _lines(options: Mapping[str, str]) -> str:
    return "".join(f"{key}={value}\n" for key, value in options.items())
