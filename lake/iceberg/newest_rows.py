"""The newest row of each key of a table in upsert mode, as the compaction of a log keeps it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.table import Table

from ..failures import TableRefused
from ..record_columns import DELETED, OP, OTTLA, UPSERTED
from .merged_rows import FileRows, Key, keys_of

KEYS_BYTES_MAX: Final = 512 * 1024 * 1024
"""Bytes of the keys of a table, with their places, that are held in memory. As many of further rows wait."""
PIECE_BYTES: Final = 8 * 1024 * 1024
"""Bytes of keys and places after which the newest of their rows are chosen."""
_COLUMNS: Final = (f"{OTTLA}.partition", f"{OTTLA}.offset", f"{OTTLA}.key", OP)
_PLACE: Final = ["partition", "offset"]
_AGGREGATED: Final = {"partition": "partition", "key": "key", "offset": "offset_last", "op": "op_last"}
_NOTHING: Final = pa.schema(
    [("partition", pa.int32()), ("key", pa.large_binary()), ("offset", pa.int64()), ("op", pa.string())]
).empty_table()


@dataclass(frozen=True, slots=True)
class NewestPlaces:
    """The places of the rows to keep: for each partition and key the newest, unless it deletes the key."""

    partitions: pa.Array
    offsets: pa.Array
    """The places in their order."""

    def __len__(self) -> int:
        return len(self.offsets)

    def kept(self, rows: pa.Table) -> pa.Table:
        """Return the rows to keep, of rows in the order of partitions and offsets."""
        partitions, offsets = keys_of(rows)
        kept, begin = [], 0
        while begin < rows.num_rows:
            partition = partitions[begin].as_py()
            end = bisect_right(range(rows.num_rows), partition, key=lambda row: partitions[row].as_py())
            here = offsets.slice(begin, end - begin)
            first = self._place((partition, here[0].as_py()))
            after = self._place((partition, here[-1].as_py() + 1))
            wanted = pc.is_in(here, value_set=self.offsets.slice(first, after - first))
            kept.append(rows.slice(begin, end - begin).filter(wanted))
            begin = end
        return pa.concat_tables(kept) if kept else rows

    def _place(self, key: Key) -> int:
        return bisect_left(
            range(len(self.offsets)),
            key,
            key=lambda row: (self.partitions[row].as_py(), self.offsets[row].as_py()),
        )


def newest_places(table: Table, files: Sequence[DataFile]) -> NewestPlaces:
    """Return the places of the rows to keep in a table. A row without a key is kept.

    Raises TableRefused if the keys are too many to be held in memory, or if a file is not Parquet, and errors of the
    store.
    """
    name = ".".join(table.name())
    if others := {file.file_format for file in files} - {FileFormat.PARQUET}:
        raise TableRefused(f"table {name} has files in {others.pop()}; only Parquet is compacted by keys")
    newest, keyless = _NOTHING, [_NOTHING]
    waiting: list[pa.Table] = []
    waiting_bytes = 0
    for piece in _pieces(table, files):
        has_key = pc.is_valid(piece["key"])
        if not pc.all(has_key).as_py():
            keyless.append(piece.filter(pc.invert(has_key)))
            piece = piece.filter(has_key)
        waiting.append(piece)
        waiting_bytes += piece.nbytes
        # The known keys are looked at again only after as many further bytes, so that large tables take no longer.
        if waiting_bytes >= max(PIECE_BYTES, newest.nbytes):
            newest, waiting, waiting_bytes = _newest(name, [newest, *waiting]), [], 0
    newest = _newest(name, [newest, *waiting])
    alive = newest.filter(pc.not_equal(pc.fill_null(newest["op"], UPSERTED), DELETED))
    places = pa.concat_tables([alive, *keyless]).select(_PLACE)
    places = places.sort_by([(column, "ascending") for column in _PLACE]).combine_chunks()
    return NewestPlaces(*(places[column].combine_chunks() for column in _PLACE))


def _pieces(table: Table, files: Iterable[DataFile]) -> Iterator[pa.Table]:
    for file in files:
        with FileRows(table, file, _COLUMNS) as rows:
            for piece in rows:
                records = piece.column(OTTLA).combine_chunks()
                partitions, offsets = keys_of(piece)
                yield pa.table(
                    {
                        "partition": partitions,
                        "key": records.field("key").cast(pa.large_binary()),
                        "offset": offsets,
                        "op": piece.column(OP).cast(pa.string()),
                    }
                )


def _newest(name: str, pieces: Sequence[pa.Table]) -> pa.Table:
    """Return the newest row of each partition and key. Raises TableRefused if the keys are too many."""
    rows = pa.concat_tables(pieces).sort_by("offset")
    grouped = rows.group_by(["partition", "key"], use_threads=False)
    found = grouped.aggregate([("offset", "last"), ("op", "last")])
    if found.nbytes > KEYS_BYTES_MAX:
        raise TableRefused(
            f"table {name}: its keys take more than {KEYS_BYTES_MAX >> 20} MiB, which `ottla lake compact` does "
            "not hold in memory. Its files stay as they are"
        )
    return pa.table({column: found[place] for column, place in _AGGREGATED.items()})
