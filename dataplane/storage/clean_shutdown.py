"""The states of all logs of a data folder at a clean stop, in one file, for the next start.

The file lies beside the mark of a clean stop, names that mark, and is removed with it before any log is written to. The
file only saves time. A missing, damaged or outdated file makes the broker open all logs from their own files. So the
file need not be flushed.
"""

from __future__ import annotations

import json
import logging
import os
from base64 import b64decode, b64encode
from collections.abc import Mapping
from pathlib import Path
from sys import intern
from typing import Any

from ...protocol.checksum import crc32c
from ..log.checkpoints import CLEAN_SHUTDOWN, TopicPartition
from ..log.durable_files import read_file, write_atomically
from ..log.recovery.clean_log_state import CleanLogState, Fingerprint, KnownSegment

FILE_NAME = "settled-logs"
_VERSION = 1
_CRC_DIGITS = 8

logger = logging.getLogger(__name__)


def write(path: Path, directory_id: bytes, logs: Mapping[TopicPartition, CleanLogState]) -> None:
    """Write the file, after the mark of the clean stop. Raises KafkaError: KAFKA_STORAGE_ERROR. Raises OSError if there
    is no mark."""
    numbers: dict[tuple[str, ...], int] = {}
    rows = [
        [*key, *_row(known, numbers.setdefault(known.fingerprint.names, len(numbers)))]
        for key, known in logs.items()
    ]
    content = {
        "version": _VERSION,
        "directory": directory_id.hex(),
        "mark": _mark(path),
        "names": list(numbers),
        "logs": rows,
    }
    data = json.dumps(content, separators=(",", ":")).encode()
    write_atomically(path / FILE_NAME, b"%08x" % crc32c(data) + data, sync=False)


def take(path: Path, directory_id: bytes) -> dict[TopicPartition, CleanLogState]:
    """Read and remove the file, before the mark is removed. Returns no entries if the file cannot be read, or does not
    belong to the present mark."""
    file = path / FILE_NAME
    try:
        data = read_file(file)
        file.unlink()
    except FileNotFoundError:
        return {}
    except OSError as error:
        logger.warning("%s is passed over: %s", file, error.strerror)
        return {}
    try:
        return _decoded(data, directory_id, _mark(path))
    except FileNotFoundError:
        return {}  # The last stop was not clean.
    except (OSError, ValueError, TypeError, KeyError, IndexError) as error:
        logger.warning("%s is passed over: %s", file, error)
        return {}


def _mark(path: Path) -> list[int]:
    """Return values of the clean-stop mark in the data folder that distinguish it from the mark of any other stop.
    Raises OSError.
    """
    status = os.stat(path / CLEAN_SHUTDOWN)
    return [status.st_ino, status.st_ctime_ns, status.st_size]


def _row(known: CleanLogState, names: int) -> list[object]:
    topic_id, fingerprint, *fields, producers = known
    topic_id_hex = None if topic_id is None else topic_id.hex()
    return [topic_id_hex, [names, fingerprint.digest.hex()], *fields, b64encode(producers).decode()]


def _decoded(data: bytes, directory_id: bytes, mark: list[int]) -> dict[TopicPartition, CleanLogState]:
    """Decode the content of the file with the logs' states. Raises ValueError, among others, if it is damaged, or is of
    another folder or stop.
    """
    with memoryview(data) as view:
        if int(data[:_CRC_DIGITS], 16) != crc32c(view[_CRC_DIGITS:]):
            raise ValueError("its CRC-32C is another")
    content = json.loads(data[_CRC_DIGITS:])
    if content["version"] != _VERSION:
        raise ValueError(f"version {content['version']} is not {_VERSION}")
    if content["directory"] != directory_id.hex():
        raise ValueError(f"it is of data folder {content['directory']}")
    if content["mark"] != mark:
        raise ValueError("it is of another stop")
    names = [
        tuple(map(intern, each)) for each in content["names"]
    ]  # Interned, since most logs share their names.
    return {(topic, index): _known(row, names) for topic, index, *row in content["logs"]}


def _known(row: list[Any], names: list[tuple[str, ...]]) -> CleanLogState:
    topic_id, (number, digest), end_offset, has_gaps, epochs, segments, *of_the_last, producers = row
    return CleanLogState._make(
        (
            None if topic_id is None else bytes.fromhex(topic_id),
            Fingerprint(names[number], bytes.fromhex(digest)),
            end_offset,
            has_gaps,
            epochs,
            [KnownSegment._make(each) for each in segments],
            *of_the_last,
            b64decode(producers),
        )
    )
