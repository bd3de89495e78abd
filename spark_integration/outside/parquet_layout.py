"""The layout of a table of Parquet files: its columns, and the columns whose values are folder names, as with Hive."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from .failures import BatchRefused, OutsideError
from .parquet_commits import COMMITS, FORMAT, read_json, write_durably

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType

LAYOUT: Final = "table.json"
NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
"""Folder name that stands for NULL."""
_ESCAPED: Final = frozenset("\"#%'*/:=?\\{[]^\x7f" + "".join(map(chr, range(0x20))))
_OF_FOLDERS: Final = frozenset(
    {"StringType", "ByteType", "ShortType", "IntegerType", "LongType", "DateType", "BooleanType"}
)
_OF_FILES: Final = _OF_FOLDERS | {
    "BinaryType",
    "CharType",
    "DecimalType",
    "DoubleType",
    "FloatType",
    "TimestampNTZType",
    "TimestampType",
    "VarcharType",
}


def local_folder(path: str) -> Path:
    """Return the folder of a path or a `file:` URI. Raises ValueError for a path on another file system."""
    parts = urlsplit(path)
    if "://" in path or parts.scheme == "file":
        if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
            raise ValueError(
                f"{path!r} is not on a local or mounted file system. Spark reads a table in a store: "
                "read_parquet_table(spark, path)"
            )
        path = parts.path
    if not path:
        raise ValueError("the path of a table is empty")
    return Path(path).absolute()


@dataclass(frozen=True, slots=True)
class Layout:
    """A table's columns as JSON of Spark's schema, all nullable. `folders` are the columns stored as folder names."""

    schema: dict[str, Any]
    folders: tuple[str, ...]

    @classmethod
    def of(cls, schema: StructType, folders: tuple[str, ...]) -> Layout:
        """Return the layout of a batch. Raises BatchRefused for columns that files cannot store."""
        columns = schema.fieldNames()
        twice = sorted({name for name in columns if columns.count(name) > 1})
        if twice:
            raise BatchRefused(f"the batch has several columns {twice[0]!r}")
        for folder in folders:
            if folder not in columns:
                raise BatchRefused(
                    f"the batch has no column {folder!r} to partition by; it has {', '.join(columns)}"
                )
        if set(folders) == set(columns):
            raise BatchRefused("no column is left for the files: all of them are partitioned by")
        for field in schema.fields:
            _check_type(field.name, field.dataType, _OF_FOLDERS if field.name in folders else _OF_FILES)
        return cls(_nullable(json.loads(schema.json())), folders)

    @classmethod
    def read(cls, table: Path) -> Layout:
        """Read the layout of a table. Raises OutsideError if there is no table."""
        try:
            return cls.of_json(read_json(table / COMMITS / LAYOUT))
        except FileNotFoundError:
            raise OutsideError(f"{table} is no table that parquet_sink has written to") from None

    @classmethod
    def of_json(cls, found: dict[str, Any]) -> Layout:
        """Return the layout in the JSON of the file `table.json`."""
        return cls(found["schema"], tuple(found["partition_by"]))

    def ensure(self, table: Path) -> None:
        """Create the table, or check that an existing table has this layout. Raises BatchRefused if it differs."""
        folder = table / COMMITS
        if not (folder / LAYOUT).exists():
            folder.mkdir(parents=True, exist_ok=True)
            if write_durably(folder / LAYOUT, self.to_json(), replace=False):
                return
        self.check(Layout.read(table))

    def to_json(self) -> str:
        """Return the content of the table's file `table.json`."""
        return json.dumps({"format": FORMAT, "schema": self.schema, "partition_by": self.folders})

    def check(self, there: Layout) -> None:
        """Compare a batch's layout with that of the table. Raises BatchRefused if they differ."""
        if there.folders != self.folders:
            raise BatchRefused(
                f"the table is partitioned by {list(there.folders)}, and the batch by {list(self.folders)}"
            )
        ours, theirs = self._types(), there._types()
        if ours != theirs:
            changes = [
                f"{name!r} is {ours.get(name, 'missing')} in the batch and {theirs.get(name, 'missing')} in the table"
                for name in sorted({*ours, *theirs})
                if ours.get(name) != theirs.get(name)
            ]
            raise BatchRefused(
                "the batch's columns are not the table's: "
                + ("; ".join(changes))
                + ". Select what the table has, or write to another table"
            )

    def spark_schema(self) -> StructType:
        """Return the schema to read with."""
        from pyspark.sql.types import StructType

        return StructType.fromJson(self.schema)

    def _types(self) -> dict[str, str]:
        return {field["name"]: json.dumps(field["type"], sort_keys=True) for field in self.schema["fields"]}


def folder_of(names: Sequence[str], values: Sequence[str | None]) -> str:
    """Return the folder `k=v/l=w` for these values. Raises BatchRefused for values that could not be read back."""
    for name, value in zip(names, values, strict=True):
        if value in ("", NO_VALUE):
            raise BatchRefused(
                f"the column {name!r} is partitioned by, and cannot be {value!r}: no folder tells that"
            )
    return "/".join(
        f"{_escaped(name)}={NO_VALUE if value is None else _escaped(value)}"
        for name, value in zip(names, values, strict=True)
    )


def literal_path(path: str) -> str:
    """Escape a path, since Spark reads paths as glob patterns."""
    return "".join(f"\\{character}" if character in "\\{}[]*?^" else character for character in path)


def column(name: str) -> Column:
    """Return the column of this name, which may contain dots."""
    from pyspark.sql.functions import col

    return col(f"`{name.replace('`', '``')}`")


def _escaped(text: str) -> str:
    """Escape text as Hive and Spark do. Non-ASCII text stays, since Spark would not read its escaped form back."""
    return "".join(f"%{ord(character):02X}" if character in _ESCAPED else character for character in text)


def _check_type(name: str, kind: DataType, known: frozenset[str]) -> None:
    from pyspark.sql.types import ArrayType, MapType, StructType

    if known is _OF_FILES:
        if isinstance(kind, ArrayType):
            return _check_type(f"{name}.element", kind.elementType, known)
        if isinstance(kind, MapType):
            _check_type(f"{name}.key", kind.keyType, known)
            return _check_type(f"{name}.value", kind.valueType, known)
        if isinstance(kind, StructType):
            for field in kind.fields:
                _check_type(f"{name}.{field.name}", field.dataType, known)
            return None
    if type(kind).__name__ not in known:
        what = "partitioned by" if known is _OF_FOLDERS else "written to files"
        raise BatchRefused(
            f"the column {name!r} is {kind.simpleString()}, which cannot be {what}: cast it first"
        )
    return None


def _nullable(kind: Any) -> Any:
    if isinstance(kind, list):
        return [_nullable(part) for part in kind]
    if not isinstance(kind, dict):
        return kind
    found = {key: _nullable(value) for key, value in kind.items() if key != "metadata"}
    for key in ("nullable", "containsNull", "valueContainsNull"):
        if key in found:
            found[key] = True
    if "nullable" in found:
        found["metadata"] = {}
    return found
