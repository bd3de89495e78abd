"""`ottla log dump`: prints segments and other files entry by entry while it reads them, since they may be larger than
memory."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ....dataplane.log.checkpoints import LEADER_EPOCHS, PARTITION_METADATA, read_leader_epochs, read_offsets
from ....dataplane.log.inspection import index_entries, segments_in, walk_segment
from ....dataplane.log.producers.producer_snapshot import SUFFIX as SNAPSHOT_SUFFIX
from ....dataplane.log.producers.producer_snapshot import read_snapshot
from ....dataplane.log.segments.segment import TRANSACTION_INDEX_SUFFIX
from ....dataplane.log.segments.transaction_index import decode_transactions
from ....dataplane.log.storage_errors import BrokenBatch
from ....protocol.errors import KafkaError
from ....protocol.records.compression import Compression
from ....protocol.records.record import Record, decode_control_record, decode_records
from ....protocol.records.record_batch import BatchHeader, check_integrity
from ...arguments.selection import iso_time
from ...failures import CommandFailed
from ...terminal.text import say

Line = tuple[str, dict[str, Any]]
"""A printed entry: its type, and its fields in order."""
SHOWN_BYTES_MAX = 200


def dump(arguments: argparse.Namespace) -> None:
    """Print the entries of every given file or folder. Raises CommandFailed if a file cannot be read or is damaged."""
    show = _json if arguments.output == "json" else _text
    for path in arguments.paths:
        for file in _files(path):
            if arguments.output != "json":
                say(f"{file}")
            try:
                for line in _lines(file, arguments):
                    say(show(line))
            except BrokenBatch as broken:
                raise CommandFailed(f"{file} is damaged at byte {broken.position}: {broken.reason}") from None
            except KafkaError as error:
                raise CommandFailed(error.message) from None
            except ValueError as error:
                raise CommandFailed(f"{file}: {error}") from None


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = segments_in(path)
    if not found:
        raise CommandFailed(f"{path} holds no segments; name the folder of a partition, such as orders-0")
    return found


def _lines(path: Path, arguments: argparse.Namespace) -> Iterator[Line]:
    if path.suffix == ".log":
        return _batches(path, arguments)
    reader = _READERS.get(path.suffix) or _READERS.get(path.name)
    if reader is None and path.name.endswith("-checkpoint"):
        reader = _offsets
    if reader is None:
        path.stat()  # Raise FileNotFoundError for a missing file, rather than complain about its name.
        known = ", ".join(sorted({".log", "*-checkpoint", *_READERS}))
        raise CommandFailed(f"{path}: no file of a log by its name; there are {known}")
    return reader(path)


def _batches(path: Path, arguments: argparse.Namespace) -> Iterator[Line]:
    for position, header, batch in walk_segment(path):
        if header.last_offset < arguments.first:
            continue
        if arguments.last is not None and header.base_offset > arguments.last:
            return
        valid = True
        try:
            check_integrity(batch, 0, header)
        except KafkaError:
            valid = False
        yield "batch", _batch_fields(position, header, valid)
        if arguments.print_data and valid:
            for record in decode_records(batch):
                upto = record.offset if arguments.last is None else arguments.last
                if arguments.first <= record.offset <= upto:
                    yield "record", _record_fields(record, header)


def _batch_fields(position: int, header: BatchHeader, valid: bool) -> dict[str, Any]:
    flags = [
        name
        for name, is_set in (
            ("transactional", header.is_transactional),
            ("control", header.is_control),
            ("log-append-time", header.is_log_append_time),
            ("delete-horizon", header.has_delete_horizon),
        )
        if is_set
    ]
    codec = header.compression
    return {
        "offsets": [header.base_offset, header.last_offset],
        "position": position,
        "size": header.size,
        "records": header.record_count,
        "leader_epoch": header.partition_leader_epoch,
        "compression": Compression(codec).name.lower() if codec <= max(Compression) else str(codec),
        "max_timestamp_ms": header.max_timestamp,
        "producer": [header.producer_id, header.producer_epoch, header.base_sequence],
        "flags": flags,
        "crc": "ok" if valid else "WRONG",
    }


def _record_fields(record: Record, header: BatchHeader) -> dict[str, Any]:
    fields: dict[str, Any] = {"offset": record.offset, "timestamp_ms": record.timestamp_ms}
    if header.is_control:
        marker = decode_control_record(record)
        fields["control"] = "unknown" if marker is None else marker.type.name.lower()
        if marker is not None:
            fields["number"] = marker.number
            fields["commit_index"] = marker.commit_index
        return fields
    fields["key"] = _shown(record.key)
    fields["value"] = _shown(record.value)
    fields["headers"] = [[name, _shown(value)] for name, value in record.headers]
    return fields


def _shown(data: bytes | None) -> str | None:
    """Return bytes as text, with escapes for bytes that are no UTF-8."""
    return None if data is None else data.decode("utf-8", "backslashreplace")


def _offset_index(path: Path) -> Iterator[Line]:
    for offset, position in index_entries(path):
        yield "entry", {"offset": offset, "position": position}


def _time_index(path: Path) -> Iterator[Line]:
    for timestamp, offset in index_entries(path):
        yield "entry", {"timestamp_ms": timestamp, "offset": offset}


def _transaction_index(path: Path) -> Iterator[Line]:
    for aborted in decode_transactions(path.read_bytes()):
        yield "aborted", aborted._asdict()


def _snapshot(path: Path) -> Iterator[Line]:
    for entry in read_snapshot(path).entries():
        yield (
            "producer",
            {
                "producer_id": entry.producer_id,
                "epoch": entry.producer_epoch,
                "last_sequence": entry.last_sequence,
                "last_offset": entry.batches[-1].last_offset if entry.batches else -1,
                "last_seen_ms": entry.last_seen_ms,
                "transaction_first_offset": entry.transaction_first_offset,
                "marker_number": entry.marker_number,
                "marker_commit_index": entry.marker_commit_index,
            },
        )


def _epochs(path: Path) -> Iterator[Line]:
    if not path.exists():
        raise CommandFailed(f"cannot read {path}: there is no such file")
    for epoch, start in read_leader_epochs(path.parent):
        yield "epoch", {"leader_epoch": epoch, "start_offset": start}


def _offsets(path: Path) -> Iterator[Line]:
    if not path.exists():
        raise CommandFailed(f"cannot read {path}: there is no such file")
    for (topic, index), offset in sorted(read_offsets(path).items()):
        yield "offset", {"topic": topic, "partition": index, "offset": offset}


def _properties(path: Path) -> Iterator[Line]:
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        name, found, value = line.replace("=", ":", 1).partition(":")
        if found and not line.startswith("#"):
            yield "property", {name.strip(): value.strip()}


_READERS: dict[str, Callable[[Path], Iterator[Line]]] = {
    ".index": _offset_index,
    ".timeindex": _time_index,
    TRANSACTION_INDEX_SUFFIX: _transaction_index,
    SNAPSHOT_SUFFIX: _snapshot,
    LEADER_EPOCHS: _epochs,
    PARTITION_METADATA: _properties,
    "meta.properties": _properties,
}


def _json(line: Line) -> str:
    return json.dumps({"type": line[0], **line[1]}, ensure_ascii=False)


def _text(line: Line) -> str:
    kind, fields = line
    indent = "    " if kind == "record" else "  "
    return indent + "  ".join(
        f"{name}={_field(name, value)}" for name, value in fields.items() if value != []
    )


def _field(name: str, value: Any) -> str:
    if name == "offsets":
        return f"{value[0]}-{value[1]}"
    if name.endswith("_ms") and isinstance(value, int) and value >= 0:
        return iso_time(value)
    if name == "producer":
        return "none" if value[0] < 0 else ":".join(map(str, value))
    if name in ("key", "value"):
        text = "null" if value is None else json.dumps(value, ensure_ascii=False)
        return text if len(text) <= SHOWN_BYTES_MAX else text[:SHOWN_BYTES_MAX] + "..."
    if name == "headers":
        return ",".join(f"{key}={text}" for key, text in value)
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
