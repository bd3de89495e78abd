"""The position up to which this broker has followed the cluster's metadata, as a file in its data folders.

A broker receives all metadata at each start. With the file it notices when the quorum has less metadata than before,
because folders of quorum nodes were restored from old copies. The file is written from time to time and at a stop, so
it may be slightly behind if the broker was killed.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from pathlib import Path

from ...protocol.errors import KafkaError
from ..log.durable_files import write_atomically
from ..quorum.config import MetadataPosition

logger = logging.getLogger(__name__)

FILE_NAME = "metadata-position"
_VERSION = 0


def read(folders: Iterable[Path]) -> MetadataPosition | None:
    """Return the furthest position in the folders; None if no folder has one.

    A file that cannot be read is skipped with a warning: the position is a safeguard, and no reason not to start.
    """
    found = [position for folder in folders if (position := _read_one(folder / FILE_NAME)) is not None]
    return max(found, key=lambda position: position.offset, default=None)


def _read_one(path: Path) -> MetadataPosition | None:
    try:
        content = json.loads(path.read_bytes())
        if content["version"] != _VERSION:
            raise ValueError(f"version {content['version']} is not {_VERSION}")
        return MetadataPosition(int(content["offset"]), int(content["history"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        logger.warning("%s cannot be read, and is passed over: %s", path, error)
        return None


def write(folders: Iterable[Path], position: MetadataPosition) -> None:
    """Write the position to every folder. Blocks. A failure in a folder is logged and not raised."""
    content = {"version": _VERSION, "offset": position.offset, "history": position.history}
    for folder in folders:
        try:
            write_atomically(folder / FILE_NAME, json.dumps(content).encode(), sync=True)
        except KafkaError as error:
            logger.warning("%s", error.message)


def forget(folders: Iterable[Path]) -> None:
    """Remove the position, because an operator has restored the quorum from copies on purpose. Blocks. Raises
    OSError."""
    for folder in folders:
        (folder / FILE_NAME).unlink(missing_ok=True)
