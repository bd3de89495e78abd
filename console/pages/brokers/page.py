"""The pages of brokers: usage of data folders, replicas, and settings with their sources."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ....client.admin import BROKER_RESOURCE, LogDirDescription
from ....protocol.errors import KafkaError
from ...area import NotThere, Paged, Rendered, Visit
from ...formats import numbers
from ...live.snapshots import answer_or_error
from ...settings import SettingRow, setting_rows
from ...sorting import Column, Sorted
from .rows import COLUMNS, BrokerRow, broker_rows

HEALTHY: Final = "healthy"
NEARLY_FULL: Final = "nearly full"
FULL: Final = 0.9
"""The used part from which a folder is marked: retention may not make room in time."""


@dataclass(frozen=True, slots=True)
class FolderRow:
    """A data folder of a broker as a table row.

    `size` is the bytes of its replicas. `total` and `free` are the bytes of its volume, None if the broker does not
    report them.
    """

    broker: int
    path: str
    trouble: str
    replicas: int
    size: int
    total: int | None
    free: int | None
    is_cordoned: bool

    @property
    def used(self) -> float | None:
        """The used part of the folder's volume, 0 to 1, whatever files use it; None if unknown."""
        return None if not self.total or self.free is None else 1 - self.free / self.total

    @property
    def used_text(self) -> str:
        """The used part of the folder's volume in percent; empty if unknown."""
        return "" if self.used is None else f"{self.used:.0%}"

    @property
    def state(self) -> str:
        """HEALTHY, NEARLY_FULL, or the folder's error."""
        return self.trouble or (NEARLY_FULL if self.is_full else HEALTHY)

    @property
    def is_full(self) -> bool:
        """True if the folder's volume is used to FULL or more."""
        return self.used is not None and self.used >= FULL


FOLDER_COLUMNS: Final = (
    Column[FolderRow]("broker", "broker", lambda row: (row.broker, row.path), is_number=True),
    Column[FolderRow]("folder", "folder", lambda row: row.path),
    Column[FolderRow]("state", "state", lambda row: (row.state == HEALTHY, row.state)),
    Column[FolderRow](
        "replicas", "replicas", lambda row: row.replicas, is_number=True, descending_first=True
    ),
    Column[FolderRow](
        "size", "size of replicas", lambda row: row.size, is_number=True, descending_first=True
    ),
    Column[FolderRow]("free", "free", lambda row: row.free, is_number=True),
    Column[FolderRow]("volume", "volume", lambda row: row.total, is_number=True, descending_first=True),
    Column[FolderRow]("used", "used", lambda row: row.used, is_number=True, descending_first=True),
)


@dataclass(frozen=True, slots=True)
class BrokersPage:
    """The data that the template of the list of brokers shows.

    `silent` maps brokers to the reason why they reported no folders.
    """

    folders: Sorted[FolderRow]
    silent: Mapping[int, str]
    brokers: Sorted[BrokerRow]


@dataclass(frozen=True, slots=True)
class ReplicaRow:
    """A replica in a data folder of the broker as a table row; `size` is in bytes."""

    topic: str
    name: str
    path: str
    size: int


REPLICA_COLUMNS: Final = (
    Column[ReplicaRow]("replica", "replica", lambda row: row.name),
    Column[ReplicaRow]("size", "size", lambda row: row.size, is_number=True, descending_first=True),
    Column[ReplicaRow]("folder", "folder", lambda row: row.path),
)


@dataclass(frozen=True, slots=True)
class BrokerPage:
    """The data that the template of one broker's page shows."""

    broker: BrokerRow
    folders: Sequence[FolderRow]
    trouble: str
    sorted: Sorted[ReplicaRow]
    replicas: Paged[ReplicaRow]
    settings: Sequence[SettingRow]
    settings_trouble: str
    shows_all: bool


def folder_rows(broker: int, folders: Sequence[LogDirDescription]) -> list[FolderRow]:
    """Return the table rows of a broker's folders."""
    return [
        FolderRow(
            broker,
            folder.path,
            "" if folder.error is None else folder.error.message,
            len(folder.replicas),
            sum(folder.replicas.values()),
            folder.total_bytes if folder.total_bytes >= 0 else None,
            folder.usable_bytes if folder.usable_bytes >= 0 else None,
            folder.is_cordoned,
        )
        for folder in folders
    ]


def replica_rows(folders: Sequence[LogDirDescription]) -> list[ReplicaRow]:
    """Return the table rows of all replicas of a broker."""
    return [
        ReplicaRow(name.topic, f"{name.topic}-{name.partition}", folder.path, size)
        for folder in folders
        for name, size in folder.replicas.items()
    ]


def all_folders(
    answers: Mapping[int, Sequence[LogDirDescription] | KafkaError],
) -> tuple[list[FolderRow], dict[int, str]]:
    """Return the table rows of all brokers' folders, and the errors of the brokers that report no folders."""
    folders: list[FolderRow] = []
    silent: dict[int, str] = {}
    for broker, answer in sorted(answers.items()):
        if isinstance(answer, KafkaError):
            silent[broker] = answer.message
        else:
            folders += folder_rows(broker, answer)
    return folders, silent


async def show(visit: Visit) -> Rendered:
    """Return the page that lists the brokers and their data folders."""
    snapshot = await visit.sampler.snapshot()
    folders, silent = all_folders(await visit.admin.describe_log_dirs())
    brokers = broker_rows(snapshot, visit.sampler.absent_since)
    model = BrokersPage(
        visit.sorted(folders, FOLDER_COLUMNS, "broker", parameter="folders", at="folders"),
        silent,
        visit.sorted(brokers, COLUMNS, "state"),
    )
    return Rendered("Brokers", "brokers.html", model)


async def broker_named(visit: Visit) -> BrokerRow:
    """Return the broker that the page's query names. Raises BadQuestion and NotThere."""
    number = visit.number("id", least=0, most=2**31 - 1)
    rows = broker_rows(await visit.sampler.snapshot(), visit.sampler.absent_since)
    for row in rows:
        if row.id == number:
            return row
    raise NotThere(f"there is no broker {number}; the brokers are {numbers(sorted(row.id for row in rows))}")


async def show_one(visit: Visit) -> Rendered:
    """Return the page of the broker that the query names. Raises NotThere."""
    broker = await broker_named(visit)
    answers, settings = await asyncio.gather(
        visit.admin.describe_log_dirs([broker.id]),
        answer_or_error(visit.admin.describe_configs(BROKER_RESOURCE, str(broker.id))),
    )
    answer = answers[broker.id]
    folders = [] if isinstance(answer, KafkaError) else answer
    shows_all = visit.text("all") == "yes"
    replicas = visit.sorted(replica_rows(folders), REPLICA_COLUMNS, "-size", at="replicas")
    model = BrokerPage(
        broker,
        folder_rows(broker.id, folders),
        answer.message if isinstance(answer, KafkaError) else "",
        replicas,
        visit.paged(replicas.rows),
        [] if isinstance(settings, KafkaError) else setting_rows(settings, shows_all=shows_all),
        settings.message if isinstance(settings, KafkaError) else "",
        shows_all,
    )
    return Rendered(f"Broker {broker.id}", "broker.html", model)
