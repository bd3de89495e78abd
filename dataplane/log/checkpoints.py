"""The small text files beside the segments, in Kafka's format, each replaced atomically."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from ...protocol.errors import ErrorCode, KafkaError
from .durable_files import read_file, sync_directory, write_atomically
from .storage_errors import disk_error

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
_VERSION = 0

TopicPartition = tuple[str, int]


def _unreadable(path: Path, reason: str) -> KafkaError:
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} is damaged: {reason}")


def _read_rows(path: Path, columns: int) -> list[list[str]]:
    """Return the rows of a checkpoint: a version line, a count line, then that many rows. A missing file has no rows.

    Raises KafkaError: KAFKA_STORAGE_ERROR if it cannot be read or is not well formed.
    """
    try:
        text = read_file(path).decode()
    except FileNotFoundError:
        return []
    except UnicodeDecodeError:
        raise _unreadable(path, "it is not text") from None
    except OSError as error:
        raise disk_error("read", path, error) from error
    lines = text.splitlines()
    if len(lines) < 2 or not lines[1].strip().isdigit():
        raise _unreadable(path, "it needs a version line and a count line")
    if lines[0].strip() != str(_VERSION):
        raise _unreadable(path, f"version {lines[0].strip()[:20]!r} is not {_VERSION}")
    rows = [line.split() for line in lines[2:] if line.strip()]
    if len(rows) != int(lines[1]):
        raise _unreadable(path, f"it announces {int(lines[1])} rows and holds {len(rows)}")
    for number, row in enumerate(rows, start=3):
        if len(row) != columns or not all(_is_number(field) for field in row[columns - 2 :]):
            raise _unreadable(path, f"line {number} is not well formed")
    return rows


def _is_number(field: str) -> bool:
    return field.removeprefix("-").isdecimal() and field.isascii()


def _encode_rows(rows: list[str]) -> bytes:
    return "\n".join([str(_VERSION), str(len(rows)), *rows, ""]).encode()


def read_offsets(path: Path) -> dict[TopicPartition, int]:
    """Return an offset per partition; empty if there is no file. Raises KafkaError: KAFKA_STORAGE_ERROR."""
    return {(topic, int(partition)): int(offset) for topic, partition, offset in _read_rows(path, 3)}


def write_offsets(path: Path, offsets: Mapping[TopicPartition, int], *, sync: bool = True) -> None:
    """Replace a checkpoint file by these offsets per partition. Raises KafkaError: KAFKA_STORAGE_ERROR."""
    rows = [f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())]
    write_atomically(path, _encode_rows(rows), sync=sync)


def read_leader_epochs(directory: Path) -> list[tuple[int, int]]:
    """Return (epoch, start offset) pairs; empty if there is no file. Raises KafkaError: KAFKA_STORAGE_ERROR."""
    return [(int(epoch), int(start)) for epoch, start in _read_rows(directory / LEADER_EPOCHS, 2)]


def write_leader_epochs(directory: Path, entries: Iterable[tuple[int, int]], *, sync: bool = True) -> None:
    """Replace the leader epoch checkpoint of a log's folder. Raises KafkaError: KAFKA_STORAGE_ERROR."""
    write_atomically(directory / LEADER_EPOCHS, encode_leader_epochs(entries), sync=sync)


def encode_leader_epochs(entries: Iterable[tuple[int, int]]) -> bytes:
    """Return the bytes of a leader epoch file."""
    return _encode_rows([f"{epoch} {start}" for epoch, start in entries])


def encode_uuid(value: bytes) -> str:
    """Return a 16-byte id, such as a topic id, in Kafka's notation: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(value).decode().rstrip("=")


def decode_uuid(text: str) -> bytes:
    """Return the 16-byte id, such as a topic id, that `text` contains. Raises ValueError unless `text` is 16 bytes in
    URL-safe base64."""
    try:
        value = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error:
        value = b""
    if len(value) != 16:
        raise ValueError(f"{text!r} is not 16 bytes in base64")
    return value


def read_topic_id(directory: Path) -> bytes | None:
    """Return the topic id in `partition.metadata`; None if the file is missing or empty. A power failure before the
    log's first flush leaves the name without the bytes.

    Raises KafkaError: KAFKA_STORAGE_ERROR.
    """
    path = directory / PARTITION_METADATA
    try:
        text = read_file(path).decode().strip("\0")
        if not text:
            return None
        values = dict(line.split(": ", 1) for line in text.splitlines() if line)
        if values.get("version") != "0":
            raise _unreadable(path, f"version {values.get('version')} is not 0")
        return decode_uuid(values.get("topic_id", ""))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise _unreadable(path, str(error)) from error
    except OSError as error:
        raise disk_error("read", path, error) from error


def write_topic_id(directory: Path, topic_id: bytes, *, sync: bool = False) -> None:
    """Write `partition.metadata`. Raises KafkaError: KAFKA_STORAGE_ERROR."""
    text = f"version: 0\ntopic_id: {encode_uuid(topic_id)}"
    write_atomically(directory / PARTITION_METADATA, text.encode(), sync=sync)


def write_clean_shutdown(directory: Path, broker_epoch: int) -> None:
    """Write the file in a data folder that marks a clean stop of the broker in this epoch: all files in `directory`
    were flushed. Raises KafkaError: KAFKA_STORAGE_ERROR."""
    marker = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    write_atomically(directory / CLEAN_SHUTDOWN, marker.encode(), sync=True)


def take_clean_shutdown(directory: Path) -> int | None:
    """Read and remove the file that marks a clean stop in a data folder. Returns the broker epoch in it (-1 if it names
    none); None if there is no such file, since the last stop was unclean.

    Raises KafkaError: KAFKA_STORAGE_ERROR if it cannot be removed, since a later crash would pass for a clean stop.
    """
    path = directory / CLEAN_SHUTDOWN
    try:
        text = read_file(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise disk_error("read", path, error) from error
    try:
        path.unlink()
    except OSError as error:
        raise disk_error("remove", path, error) from error
    sync_directory(directory)
    try:
        epoch = json.loads(text)["brokerEpoch"]
    except (ValueError, KeyError, TypeError):
        return -1
    return epoch if isinstance(epoch, int) else -1
