"""The content of the log: one `Change` for each transaction of the database and partition."""

from __future__ import annotations

import json
import zlib
from typing import NamedTuple, Self

from ottla import ProducerIdentity

Value = str | int | float | None
Row = list[Value]
"""Columns of a row in the order of the table; the first column is the key."""


class Statement(NamedTuple):
    """A SQL statement for the partition of a key."""

    key: str
    sql: str
    args: list[Value]


class Change(NamedTuple):
    """The rows that a transaction leaves in one partition, by key; None is a deleted row.

    The *SCN* (system change number) counts the changes of a partition, and `follows` is the previous SCN. A *mark* has
    no SCN and no rows: with it a new master announces its generation.
    """

    generation: int
    scn: int | None
    follows: int | None
    rows: dict[str, Row | None]

    @classmethod
    def mark(cls, generation: int) -> Self:
        """Return the mark that a new master writes before anything else."""
        return cls(generation, None, None, {})

    @classmethod
    def decode(cls, value: bytes) -> Self:
        """Parse the output of `encode`."""
        return cls(**json.loads(value))

    def encode(self) -> bytes:
        """Return the change in the form that the log stores."""
        return json.dumps(self._asdict()).encode()


class Names(NamedTuple):
    """The names of the database's topics and transactional ids in the cluster."""

    database: str

    @property
    def log(self) -> str:
        """Topic with the changes: a partition for each partition of the database."""
        return self.database

    @property
    def masters(self) -> str:
        """Topic without records. The group of the same name assigns its partitions to the nodes.

        The node with a partition of this topic is to be the master of that partition of the database.
        """
        return f"{self.database}.masters"

    @property
    def snapshots(self) -> str:
        """Compacted topic with the newest image of each row; also the transactional id of its writer."""
        return f"{self.database}.snapshots"

    def master_of(self, partition: int) -> str:
        """Return the transactional id of a partition's master."""
        return f"{self.database}-{partition}"


def partition_of(key: str, partitions: int) -> int:
    """Return the partition of a row's key."""
    return zlib.crc32(key.encode()) % partitions


def generation_of(identity: ProducerIdentity) -> int:
    """Combine producer id and epoch into a number that rises with them; an epoch has 15 bits."""
    return identity.id << 15 | identity.epoch
