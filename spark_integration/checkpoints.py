"""Moves a query's checkpoint to another cluster: a copy of its former cluster that was promoted at a cut, or restored
from a backup.

The checkpoint may be ahead of the cut: Spark has recorded batches as done whose records never reached the new cluster.
All batches after the last committed one are removed from the checkpoint, so Spark runs them again. The cluster reports
the last committed batch as the application version of the query's transactional ids. The remaining files then name the
new cluster, and the query continues there. Until this is done the source refuses the checkpoint, so no batch is skipped
silently.

A function of foreachBatch may have several sinks, and the cut may lie between their commits of one batch. So its last
batch runs again, with the same records: sinks that have the batch skip it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ..client.admin import TransactionDescription
from ..client.failures import VersionUnsupported
from ..client.records import TopicPartition
from ..client.sync import Admin
from ..protocol.errors import KafkaError
from .source.position import Position, WrongCheckpoint, read_position

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

DEFAULT_NAME: Final = "spark"
"""Prefix of the sink's transactional ids unless option 'transactionalId' sets another."""
NO_VERSION: Final = -1
_STATE: Final = re.compile(r"(\d+)(?:_[^/]*)?\.(?:delta|snapshot|zip|changelog)")


@dataclass(frozen=True, slots=True)
class TakenOver:
    """Result of `take_over`."""

    query: str
    batch: int
    """Number of the last batch that remains in the checkpoint."""
    removed: tuple[int, ...]
    """Numbers of the batches after it, which Spark will plan and run again."""
    cluster: str
    """Id of the cluster that the checkpoint names now."""
    replayed: bool = False
    """True if Spark will run `batch` again, too, with the same records."""


def take_over(
    checkpoint: str,
    options: Mapping[str, Any],
    *,
    transactional_id: str | None = None,
    batch: int | None = None,
    only_look: bool = False,
) -> TakenOver:
    """Change a checkpoint so that its query continues on the cluster reached by these client options.

    No query may be running on the checkpoint. `transactional_id` is the sink's option of this name; the sinks of
    `ottla_sink` are found without it. `batch` is for queries that write elsewhere: the last batch that counts there.
    `only_look` computes the result and changes nothing. An interrupted call can be repeated. Raises KafkaError, and
    WrongCheckpoint with the reason before any file is changed.
    """
    files = CheckpointFiles.open(checkpoint)
    query, batches = files.query(), files.batches("offsets")
    with Admin(**options) as admin:
        cluster = admin.describe_cluster().cluster_id
        last = _last_batch(admin, query, transactional_id, cluster) if batch is None else LastBatch(batch)
        removed = batches_behind(batches, last.number)
        kept = [number for number in (last.number - 1, last.number) if number in batches]
        logs = {number: _Log.read(files.text("offsets", number), f"offsets/{number}") for number in kept}
        there = _Cluster(admin, cluster)
        taken = {number: log.moved(there.position) for number, log in logs.items()}
        there.check_reached(position for position in logs[last.number].positions if position is not None)
    if not only_look:
        files.remove_behind(last)
        # Write the offsets last: until then the source refuses the checkpoint, and this call can be repeated.
        for number, log in taken.items():
            files.write("offsets", number, log.text())
    return TakenOver(query, last.number, tuple(removed), cluster, last.is_replayed)


class LastBatch(NamedTuple):
    """The last batch of a query that counts in the new cluster."""

    number: int
    is_replayed: bool = False
    """True if the batch may be missing in some of the query's sinks, and runs again."""


def batches_behind(batches: list[int], last: int) -> list[int]:
    """Return the batches after `last`, which Spark has to run again. Raises WrongCheckpoint if Spark could not continue
    after `last`.
    """
    if not batches:
        raise WrongCheckpoint("the checkpoint has no batches: start the query with a new one")
    if last < 0:
        raise WrongCheckpoint(
            f"no batch counts, as the last is {last}: start the query with a new checkpoint"
        )
    if last > batches[-1]:
        raise WrongCheckpoint(
            f"the cluster has batch {last}, and the checkpoint ends at {batches[-1]}: it was set back, or is not this "
            "query's"
        )
    # Spark also reads the batch before the last one.
    missing = next((number for number in (last, last - 1) if number >= 0 and number not in batches), None)
    if missing is not None:
        raise WrongCheckpoint(
            f"the last batch that counts is {last}, and the checkpoint has {batches[0]} to {batches[-1]} without "
            f"{missing}: Spark keeps the last spark.sql.streaming.minBatchesToRetain batches"
        )
    return [number for number in batches if number > last]


def _last_batch(admin: Admin, query: str, name: str | None, cluster: str) -> LastBatch:
    """Return the last batch of the query's sink; of several sinks in foreachBatch, the last batch of any of them."""
    of_stream = f"{name or DEFAULT_NAME}-{query}"
    of_functions = {
        found.transactional_id for found in admin.list_transactions(pattern=f"{DEFAULT_NAME}-{query}-.*")
    }
    if name is not None:
        of_functions.add(name)
    versions = {
        known: found.app_version
        for known, found in admin.describe_transactions([of_stream, *sorted(of_functions)]).items()
        if isinstance(found, TransactionDescription) and found.app_version != NO_VERSION
    }
    if of_stream in versions:
        return LastBatch(versions[of_stream])
    if versions:
        return LastBatch(max(versions.values()), is_replayed=True)
    tried = [of_stream, f"{DEFAULT_NAME}-{query}-...", *([] if name is None else [name])]
    raise WrongCheckpoint(
        f"cluster {cluster} has no batch of this query under a transactional id {', '.join(map(repr, tried))}. Was it "
        "promoted at a cut, or restored? Has the sink another 'transactionalId'? Does it write elsewhere, so that "
        "--batch must say its last batch? If it has none indeed, start the query with a new checkpoint"
    )


class _Cluster:
    """The new cluster, with the topics and offsets that the checkpoint must agree with."""

    def __init__(self, admin: Admin, cluster: str) -> None:
        self._admin = admin
        self._cluster = cluster

    def position(self, position: Position) -> Position:
        """Return a copy of this source position with the new cluster's id and topic ids. Raises WrongCheckpoint if a
        topic is missing."""
        there = set(self._admin.list_topics())
        missing = sorted(position.topic_ids.keys() - there)
        if missing:
            raise WrongCheckpoint(
                f"cluster {self._cluster} has no topic {missing[0]!r}, which the query reads"
            )
        infos = self._admin.describe_topics(sorted(position.topic_ids)) if position.topic_ids else []
        return replace(
            position, cluster=self._cluster, topic_ids={info.name: info.id.hex() for info in infos}
        )

    def check_reached(self, positions: Iterable[Position]) -> None:
        """Check that the new cluster has all records up to these positions, which batches have read. Raises
        WrongCheckpoint if some records are missing. Other records may have their offsets by now."""
        for position in positions:
            ends = self._ends(position)
            for partition, place in sorted(position.places.items()):
                _check_end(partition, place.offset, ends.get(partition, 0))

    def _ends(self, position: Position) -> Mapping[TopicPartition, int | KafkaError]:
        """Return the ends of the records that a position's topics have in common with the topics here."""
        moved = self.position(position)
        same = {
            topic
            for topic, id_ in position.topic_ids.items()
            if (position.cluster, id_) == (self._cluster, moved.topic_ids[topic])
        }
        logs = [partition for partition in position.places if partition.topic in same]
        try:
            ends = self._admin.copied_ends(sorted(position.topic_ids.keys() - same))
        except VersionUnsupported:  # Apache Kafka, whose topics another program has copied
            logs, ends = list(position.places), {}
        return {**ends, **self._admin.list_offsets(dict.fromkeys(logs, -1))}


def _check_end(partition: TopicPartition, offset: int, end: int | KafkaError) -> None:
    if isinstance(end, KafkaError):
        raise WrongCheckpoint(f"{partition.topic}-{partition.partition}: {end.message}") from end
    if end < offset:
        raise WrongCheckpoint(
            f"the last batch that counts has read {partition.topic}-{partition.partition} up to offset {offset}, and "
            f"the cluster has it up to {end}; records at later offsets are others. What the query has made of the rest "
            "cannot be taken back: set its target back to an earlier batch, or begin a new checkpoint with "
            "startingOffsets"
        )


@dataclass(frozen=True, slots=True)
class _Log:
    """A file of Spark's offset log: a version, Spark's own values, and a line for each source."""

    head: tuple[str, ...]
    lines: tuple[str, ...]
    positions: tuple[Position | None, ...]
    """Positions of the sources; None for a source of another format."""

    @classmethod
    def read(cls, text: str, name: str) -> _Log:
        """Parse the text of the file `name`. Raises WrongCheckpoint if its format is not 'v1'."""
        lines = text.split("\n")
        head, rest = lines[:2], lines[2:]
        if len(head) < 2 or head[0] != "v1" or not rest:
            raise WrongCheckpoint(f"{name} begins with {lines[0][:50]!r}: Spark's format 'v1' is known")
        return cls(tuple(head), tuple(rest), tuple(map(_position, rest)))

    def moved(self, move: Callable[[Position], Position]) -> _Log:
        """Return a copy of the offset log's file in which `move` has replaced the source positions."""
        moved = (position if position is None else move(position) for position in self.positions)
        return replace(self, positions=tuple(moved))

    def text(self) -> str:
        """Return the text of the offset log's file, in the form that Spark reads."""
        lines = (
            line if position is None else json.dumps(position.to_json())
            for line, position in zip(self.lines, self.positions, strict=True)
        )
        return "\n".join((*self.head, *lines))


def _position(line: str) -> Position | None:
    try:
        given = json.loads(line)
    except ValueError:
        return None
    return read_position(given) if isinstance(given, dict) and "ottla" in given else None


@dataclass(frozen=True, slots=True)
class CheckpointFiles:
    """A checkpoint folder, local or on a file system that pyarrow reaches."""

    system: FileSystem
    root: str

    @classmethod
    def open(cls, checkpoint: str) -> CheckpointFiles:
        """Open a local path, or a URI like s3://bucket/path. Raises WrongCheckpoint if it cannot be reached."""
        from pyarrow.fs import FileSystem, LocalFileSystem

        if "://" not in checkpoint:
            return cls(LocalFileSystem(), checkpoint.removeprefix("file:").rstrip("/"))
        try:
            system, root = FileSystem.from_uri(checkpoint)
        except (ValueError, OSError) as error:
            raise WrongCheckpoint(f"{checkpoint} cannot be reached: {error}") from error
        return cls(system, root.rstrip("/"))

    def query(self) -> str:
        """Return the id of the query. Raises WrongCheckpoint if the folder is not a checkpoint."""
        try:
            with self.system.open_input_stream(f"{self.root}/metadata") as stream:
                return str(json.loads(stream.read().decode())["id"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise WrongCheckpoint(f"{self.root} is no checkpoint of a query: {error}") from error

    def batches(self, log: str) -> list[int]:
        """Return the batch numbers in the log 'offsets' or 'commits', in ascending order."""
        names = (path.rpartition("/")[2] for path in self._files(log))
        return sorted(int(name) for name in names if name.isdecimal())

    def text(self, log: str, batch: int) -> str:
        """Return the file that Spark has written to this log about a batch."""
        with self.system.open_input_stream(f"{self.root}/{log}/{batch}") as stream:
            return str(stream.read().decode())

    def write(self, log: str, batch: int, text: str) -> None:
        """Replace a batch's file atomically, and delete Hadoop's checksum, which belongs to the former content."""
        path, beside = f"{self.root}/{log}/{batch}", f"{self.root}/{log}/.{batch}.taken"
        with self.system.open_output_stream(beside) as stream:
            stream.write(text.encode())
        self._delete(f"{self.root}/{log}/.{batch}.crc")
        self.system.move(beside, path)

    def remove_behind(self, last: LastBatch) -> None:
        """Delete the offsets, commits and operator state of all batches after the last, and the commit of a last batch
        that runs again. The newest go first, so that an interruption leaves no gap."""
        done = last.number - 1 if last.is_replayed else last.number
        for log, kept in (("commits", done), ("offsets", last.number)):
            for number in reversed(self.batches(log)):
                if number > kept:
                    self._delete(f"{self.root}/{log}/{number}")
                    self._delete(f"{self.root}/{log}/.{number}.crc")
        for path in self._files("state", recursive=True):
            folder, _, name = path.rpartition("/")
            found = _STATE.fullmatch(name)
            # Batch N begins with state N and leaves state N + 1.
            if found is not None and int(found[1]) > last.number + 1:
                self._delete(path)
                self._delete(f"{folder}/.{name}.crc")

    def _files(self, folder: str, *, recursive: bool = False) -> Iterator[str]:
        from pyarrow.fs import FileSelector, FileType

        selector = FileSelector(f"{self.root}/{folder}", allow_not_found=True, recursive=recursive)
        found = self.system.get_file_info(selector)
        return (entry.path for entry in found if entry.type is FileType.File)

    def _delete(self, path: str) -> None:
        from pyarrow.fs import FileType

        if self.system.get_file_info(path).type is not FileType.NotFound:
            self.system.delete_file(path)
