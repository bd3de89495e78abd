"""One Iceberg table of the lake: its creation, its position in the topic, and commits that move both at once."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchTableError,
    RESTError,
    TableAlreadyExistsError,
)
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot, ancestors_of
from sqlalchemy.exc import SQLAlchemyError

from ..failures import TableRefused, WorkerFenced
from ..position import CLUSTER, TO, TOPIC, TablePosition, position_properties, read_position
from .catalogs import ensure_namespace
from .transactions import QuickTransaction, snapshot_changes

logger = logging.getLogger(__name__)

EPOCH: Final = "ottla.epoch"
"""The generation of the worker that wrote last: id and epoch of its producer, and the id of its cluster."""
COMMIT: Final = "ottla.commit"
"""A random name of one commit, by which a commit whose answer was lost is recognised."""
RETRIES: Final = "commit.retry.num-retries"
CREATED_WITH: Final = {
    "write.parquet.compression-codec": "zstd",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}
WAIT_S, WAIT_MAX_S = 0.05, 5.0
"""Seconds between attempts to commit while others commit to the table: at first, and at most."""
ATTEMPTS_MAX: Final = 30
LOOK_BACK_MAX: Final = 10_000
"""Snapshots without a position that may follow the newest with one: compactions, and deletes of rows."""

MAY_PASS: Final = (CommitFailedException, RESTError, SQLAlchemyError, OSError)
"""Failures of a commit after which it is tried again. It may have succeeded."""


class Epoch(NamedTuple):
    """The generation of a worker. In one cluster, a worker that takes a table over has a greater one."""

    producer_id: int
    producer_epoch: int
    cluster: str = ""
    """The id of the cluster that has given the producer id; empty if it is unknown."""

    def is_before(self, other: Epoch) -> bool:
        """Return whether `other` is a later generation. Generations of two clusters have no order."""
        clusters = {self.cluster, other.cluster} - {""}
        return len(clusters) < 2 and self[:2] < other[:2]


NO_EPOCH: Final = Epoch(-1, -1)
"""The generation before all workers."""


def attempts() -> Iterator[int]:
    """Yield the numbers of the attempts to commit, from 1 on, and wait before each but the first."""
    for number in range(1, ATTEMPTS_MAX + 1):
        if number > 1:
            time.sleep(min(WAIT_S * 2 ** (number - 1), WAIT_MAX_S))
        yield number


class Overtaken(Exception):
    """The table has another position or partitioning than this worker has seen: somebody else has changed it."""


@dataclass(frozen=True, slots=True)
class TableCommit:
    """A commit: its snapshot, and whether an earlier attempt had done it."""

    snapshot_id: int
    was_there: bool


class LakeTable:
    """A table that one worker writes.

    Every commit names the snapshot that it follows, and fails if the table has another by then. The commit before has
    the position from which this commit's records follow. So records are never written twice, whoever writes.
    """

    def __init__(self, catalog: Catalog, name: str, epoch: Epoch) -> None:
        self._catalog = catalog
        self.name = name
        """The name with its namespace."""
        self._epoch = epoch
        self._loaded: Table | None = None
        self._seen: TablePosition | None = None
        """The position that the next commit follows."""

    @property
    def table(self) -> Table:
        """The table as last loaded or committed."""
        assert self._loaded is not None  # `open` comes first.
        return self._loaded

    def open(self, schema: Schema, spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC) -> None:
        """Load the table, or create it, and take it over from earlier workers.

        A table that is there keeps its schema and its partitioning. Raises WorkerFenced if a later worker has taken it
        over, and errors of the catalog.
        """
        try:
            self._loaded = self._catalog.load_table(self.name)
        except NoSuchTableError:
            self._create(schema, spec)
        self._check_epoch()
        properties = self.table.properties
        if properties.get(EPOCH) != self._epoch_text or properties.get(RETRIES) != "0":
            with QuickTransaction(self.table) as transaction:
                transaction.set_properties({EPOCH: self._epoch_text, RETRIES: "0"})
        self._seen = self._position()

    def refresh(self) -> None:
        """Load the table's newest state. Raises NoSuchTableError if it was deleted."""
        self._loaded = self._catalog.load_table(self.name)

    @property
    def position(self) -> TablePosition | None:
        """The position after the newest commit of a worker; None if there is none."""
        return self._seen

    def append(self, files: Sequence[DataFile], start: TablePosition, end: TablePosition) -> TableCommit:
        """Commit files with the records between two positions of the topic, exactly once.

        Raises Overtaken if the table is not at `position` any more, WorkerFenced, TableRefused if the catalog refuses
        all attempts, NoSuchTableError, and errors of the store.
        """
        name = uuid.uuid4().hex
        properties = {**position_properties(start, end), EPOCH: self._epoch_text, COMMIT: name}
        own = {EPOCH: self._epoch_text, TOPIC: end.topic}

        def attempt() -> None:
            transaction = QuickTransaction(self.table)
            known = self.table.properties
            changed = {key: text for key, text in own.items() if known.get(key) != text}
            if changed:
                transaction.set_properties(changed)
            with transaction.update_snapshot(snapshot_properties=properties).fast_append() as producer:
                for file in files:
                    producer.append_data_file(file)
            transaction.commit_transaction()

        def check() -> TableCommit | None:
            snapshot = newest_with_position(self.table)
            if snapshot is not None and summary_of(snapshot).get(COMMIT) == name:
                return TableCommit(snapshot.snapshot_id, was_there=True)
            self._check_position()
            if any(file.spec_id != self.table.spec().spec_id for file in files):
                raise Overtaken(f"table {self.name} has another partitioning than its new files")
            return None

        was_there = self._commit(attempt, check)
        self._seen = end
        return was_there or TableCommit(self._head(), was_there=False)

    def roll_back(self, snapshot_id: int) -> None:
        """Make an earlier snapshot of the main branch the newest one. Raises as `append` does."""

        def attempt() -> None:
            with snapshot_changes(self.table) as changes:
                changes.rollback_to_snapshot(snapshot_id)

        def check() -> TableCommit | None:
            if self._head() == snapshot_id:
                return TableCommit(snapshot_id, was_there=True)
            self._check_position()
            return None

        self._commit(attempt, check)
        self._seen = self._position()

    def remove_tags(self, names: Collection[str]) -> None:
        """Remove the tags with these names from the table. Missing tags are no error. Raises as `append` does."""

        def present() -> list[str]:
            return [name for name in names if name in self.table.metadata.refs]

        def attempt() -> None:
            with snapshot_changes(self.table) as changes:
                for name in present():
                    changes.remove_tag(name)

        self._commit(attempt, lambda: None if present() else TableCommit(self._head(), was_there=True))

    def change_schema(self, change: Callable[[Table], None]) -> None:
        """Change the schema by `change`, which commits to the table that it gets. Raises as `append` does."""
        self._commit(lambda: change(self.table), lambda: None)

    def tag(self, name: str, kept: int, prefix: str) -> int:
        """Give the newest snapshot a tag, unless the table has it, and remove all but the `kept` newest tags with the
        prefix. Returns the tagged snapshot's id. Raises as `append` does."""

        def attempt() -> None:
            tags = [tag for tag in self.table.metadata.refs if tag.startswith(prefix)]
            aged = sorted(tags, key=lambda tag: int(tag.removeprefix(prefix)))[: max(0, len(tags) + 1 - kept)]
            with snapshot_changes(self.table) as changes:
                changes.create_tag(self._head(), name)
                for tag in aged:
                    changes.remove_tag(tag)

        def check() -> TableCommit | None:
            reference = self.table.metadata.refs.get(name)
            return None if reference is None else TableCommit(reference.snapshot_id, was_there=True)

        done = self._commit(attempt, check)
        return self._head() if done is None else done.snapshot_id

    def _commit(
        self, attempt: Callable[[], None], check: Callable[[], TableCommit | None]
    ) -> TableCommit | None:
        """Run `attempt` until the catalog accepts it. Before each attempt `check` looks at the table's newest state; a
        result of `check` ends the attempts."""
        failure: Exception | None = None
        for number in attempts():
            self.refresh()  # A worker that has taken the table over may have committed nothing yet.
            self._check_epoch()
            if self.table.properties.get(RETRIES) != "0":
                self._set_no_retries()
            if (done := check()) is not None:
                return done
            try:
                attempt()
                return None
            except MAY_PASS as error:
                failure = error
                logger.info("table %s: attempt %d to commit failed: %s", self.name, number, error)
        raise TableRefused(
            f"table {self.name}: the catalog refused {ATTEMPTS_MAX} attempts to commit, the last with: {failure}"
        )

    def _set_no_retries(self) -> None:
        """Forbid pyiceberg to repeat a commit by itself: it would put our rows behind those of another worker."""
        with QuickTransaction(self.table) as transaction:
            transaction.set_properties({RETRIES: "0"})

    def _create(self, schema: Schema, spec: PartitionSpec) -> None:
        ensure_namespace(self._catalog, self.name)
        try:
            self._loaded = self._catalog.create_table(
                self.name, schema, partition_spec=spec, properties={**CREATED_WITH, RETRIES: "0"}
            )
            logger.info("table %s was created", self.name)
        except TableAlreadyExistsError:
            self.refresh()

    def _check_epoch(self) -> None:
        text = self.table.properties.get(EPOCH, "")
        try:
            owner = epoch_of(text, self._cluster()) if text else NO_EPOCH
        except ValueError:
            raise TableRefused(
                f"table {self.name}: its property {EPOCH} is damaged: {text[:100]!r}"
            ) from None
        if self._epoch.is_before(owner):
            raise WorkerFenced(f"table {self.name}: another worker has taken it over")

    def _check_position(self) -> None:
        if self._position() != self._seen:
            raise Overtaken(f"table {self.name} is at another position: another worker has written to it")

    @property
    def _epoch_text(self) -> str:
        return ":".join(map(str, self._epoch))

    def _position(self) -> TablePosition | None:
        found = snapshots_to_position(self.table)
        if not found:
            return None
        position = read_position(summary_of(found[-1]))
        if position is None and TOPIC in self.table.properties:
            raise TableRefused(
                f"table {self.name}: another program has expired the snapshot with the position, so it is unknown "
                "which records the table has. Delete the table, and the worker makes it anew; or remove the table's "
                f"property {TOPIC}, and the worker adds all records again"
            )
        return position

    def _cluster(self) -> str:
        """Return the id of the cluster from which the table's records are; empty if the table has none."""
        newest = newest_with_position(self.table)
        return "" if newest is None else summary_of(newest).get(CLUSTER, "")

    def _head(self) -> int:
        snapshot = self.table.current_snapshot()
        assert snapshot is not None  # A commit came before.
        return int(snapshot.snapshot_id)


def epoch_of(text: str, cluster: str) -> Epoch:
    """Return the generation in a table's property. A text that names no cluster is of `cluster`. Raises ValueError."""
    producer_id, epoch, *named = text.split(":", 2)
    return Epoch(int(producer_id), int(epoch), "".join(named) or cluster)


def newest_with_position(table: Table) -> Snapshot | None:
    """Return the newest snapshot of the main branch that has a position; snapshots of others may follow it."""
    found = snapshots_to_position(table)
    return found[-1] if found and summary_of(found[-1]).get(TO) else None


def snapshots_to_position(table: Table) -> list[Snapshot]:
    """Return the snapshots of the main branch from the newest back to the newest with a position.

    The last has no position if none has, or if the snapshot with it was expired.
    """
    found: list[Snapshot] = []
    for snapshot in islice(ancestors_of(table.current_snapshot(), table.metadata), LOOK_BACK_MAX):
        found.append(snapshot)
        if summary_of(snapshot).get(TO):
            break
    return found


def summary_of(snapshot: Snapshot) -> dict[str, str]:
    """Return the properties that the writer of a snapshot has given to it."""
    return {} if snapshot.summary is None else dict(snapshot.summary.additional_properties)
