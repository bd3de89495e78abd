"""What the log holds: one `Change` for each transaction of the database and partition."""

from __future__ import annotations

import json
import zlib
from typing import NamedTuple, Self

from ottla import ProducerIdentity

Value = str | int | float | None
Row = list[Value]
"""Its columns in the order of the table; the first one is the key."""


class Statement(NamedTuple):
    """SQL for the partition of a key."""

    key: str
    sql: str
    args: list[Value]


class Change(NamedTuple):
    """The rows that a transaction leaves in one partition, by key; None is a row that was deleted.

    The *SCN* (system change number) counts the changes of a partition, and `follows` is the one before it. A *mark* has
    no SCN and no rows: by it a new master tells its generation.
    """

    generation: int
    scn: int | None
    follows: int | None
    rows: dict[str, Row | None]

    @classmethod
    def mark(cls, generation: int) -> Self:
        """What a new master writes before anything else."""
        return cls(generation, None, None, {})

    @classmethod
    def decode(cls, value: bytes) -> Self:
        """What `encode` has made."""
        return cls(**json.loads(value))

    def encode(self) -> bytes:
        """As it stands in the log."""
        return json.dumps(self._asdict()).encode()


class Names(NamedTuple):
    """What the database is called in the cluster."""

    database: str

    @property
    def log(self) -> str:
        """The topic with the changes: a partition for each partition of the database."""
        return self.database

    @property
    def masters(self) -> str:
        """A topic that stays empty. Whoever is assigned a partition of it by the group of the same name is to be the
        master of that partition of the database."""
        return f"{self.database}.masters"

    @property
    def snapshots(self) -> str:
        """The compacted topic with the newest image of each row; also the transactional id of its writer."""
        return f"{self.database}.snapshots"

    def master_of(self, partition: int) -> str:
        """The transactional id of a partition's master."""
        return f"{self.database}-{partition}"


def partition_of(key: str, partitions: int) -> int:
    """Where a row lives."""
    return zlib.crc32(key.encode()) % partitions


def generation_of(identity: ProducerIdentity) -> int:
    """One number for producer id and epoch that rises as they do; an epoch has 15 bits."""
    return identity.id << 15 | identity.epoch
