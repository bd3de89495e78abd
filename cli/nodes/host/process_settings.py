"""The settings of each broker of a host that differ from the shared file: id, ports, folders, host. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ....dataplane.storage.folder_settings import CORDONED
from ...failures import UsageError

PROCESSES_MAX: Final = 100
HIGHEST_PORT: Final = 65_535
_DEFAULT_LISTENERS: Final = "PLAINTEXT://:9092"


@dataclass(frozen=True, slots=True)
class ProcessSettings:
    """The id of a broker of the host, and the settings that differ from the shared file. None of them is a secret."""

    node_id: int
    own: Mapping[str, str]

    @property
    def folders(self) -> list[Path]:
        """The paths of the broker's data folders."""
        return [Path(path) for path in self.own["log.dirs"].split(",")]

    @property
    def name(self) -> str:
        """The broker's name in messages and log lines."""
        return f"broker-{self.node_id}"


def process_settings(
    values: Mapping[str, str], processes: int, ids: str | None, host: str
) -> list[ProcessSettings]:
    """Return the settings of each broker of a host, given the `values` of the shared file.

    `ids` is the first broker id, or all ids separated by commas. `host` is the machine's name, used if `values` have no
    `broker.host`. Raises UsageError, which says what is allowed.
    """
    if not 1 <= processes <= PROCESSES_MAX:
        raise UsageError(f"--processes takes 1 to {PROCESSES_MAX}, not {processes}")
    broker_ids = _broker_ids(values, processes, ids)
    listeners = _text(values, "listeners") or _DEFAULT_LISTENERS
    addresses = {"listeners": listeners, "advertised.listeners": _text(values, "advertised.listeners")}
    for key, text in addresses.items():
        _check_ports(key, text, processes)
    return [
        ProcessSettings(
            broker_id,
            {
                "node.id": str(broker_id),
                **{key: _moved(text, index) for key, text in addresses.items() if text},
                **_folders(values, broker_id),
                "broker.host": _text(values, "broker.host") or host,
            },
        )
        for index, broker_id in enumerate(broker_ids)
    ]


def _text(values: Mapping[str, str], key: str) -> str:
    return values.get(key, "").strip()


def _broker_ids(values: Mapping[str, str], processes: int, ids: str | None) -> list[int]:
    words = [word.strip() for word in (ids or _text(values, "node.id")).split(",")]
    if words == [""]:
        raise UsageError("--processes needs the first id: give --id, or node.id in the file")
    allowed = f"the first id, or {processes} different ids with commas between"
    if not all(word.isdecimal() for word in words) or len(words) not in (1, processes):
        raise UsageError(f"--id takes {allowed}, not {','.join(words)!r}")
    found = [int(word) for word in words]
    if len(found) == 1:
        return list(range(found[0], found[0] + processes))
    if len(set(found)) < len(found):
        raise UsageError(f"--id takes {allowed}: {','.join(words)} has one of them twice")
    return found


def _check_ports(key: str, listeners: str, processes: int) -> None:
    """Raise UsageError unless each listener in the setting `key` leaves a free port for every broker process."""
    taken: dict[tuple[str, int], str] = {}
    for name, host, port in _ports(listeners):
        last = port + processes - 1
        if last > HIGHEST_PORT:
            raise UsageError(
                f"{key}: {name} would take the ports {port} to {last}, and the highest is {HIGHEST_PORT}: with "
                f"--processes {processes} it begins at {HIGHEST_PORT - processes + 1} at most"
            )
        for broker_port in range(port, last + 1):
            other = taken.setdefault((host, broker_port), name)
            if other != name:
                raise UsageError(
                    f"{key}: {other} and {name} would both take port {broker_port}, as every process takes the next "
                    f"one: with --processes {processes} leave {processes} ports for each listener"
                )


def _ports(listeners: str) -> Iterator[tuple[str, str, int]]:
    """Yield name, host and port of each listener that has a port; malformed entries are left to the reader of the
    settings."""
    for entry in listeners.split(","):
        name, _, address = entry.strip().partition("://")
        host, _, port = address.rpartition(":")
        if port.isdecimal() and int(port):
            yield name, host, int(port)


def _moved(listeners: str, index: int) -> str:
    """Return the listeners of broker number `index` of the host: each port `index` higher.

    Port 0, which the system chooses, stays.
    """
    moved = []
    for entry in listeners.split(","):
        address, colon, port = entry.strip().rpartition(":")
        number = int(port) if port.isdecimal() else 0
        moved.append(f"{address}{colon}{number + index if number else port}")
    return ",".join(moved)


def _folders(values: Mapping[str, str], broker_id: int) -> dict[str, str]:
    """Return the data folder settings of a broker: a subfolder of each folder that the shared file names."""
    text = _text(values, "log.dirs") or _text(values, "log.dir")
    if not text:
        raise UsageError("log.dirs is missing: each process keeps its data in a folder broker-ID in there")
    cordoned = _text(values, CORDONED)
    own = {"log.dirs": _below(text, broker_id)}
    if cordoned and cordoned != "*":
        own[CORDONED] = _below(cordoned, broker_id)
    return own


def _below(folders: str, broker_id: int) -> str:
    return ",".join(
        f"{Path(folder.strip()) / f'broker-{broker_id}'}" for folder in folders.split(",") if folder.strip()
    )
