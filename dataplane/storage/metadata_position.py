"""How far this broker has followed the cluster's metadata, written down in its data folders.

A broker learns all metadata anew at each start. By this it notices that the quorum has less than it had before: that
folders of quorum nodes were put back from old copies. Written now and then and at a stop, so a broker that was killed
knows of a little less than it had followed.
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
    """The furthest of what the folders say; None if none says anything. One that cannot be read is passed over, with a
    warning: it is a safeguard, and no reason not to start."""
    found = [position for folder in folders if (position := _read_one(folder / FILE_NAME)) is not None]
    return max(found, key=lambda position: position.offset, default=None)


def _read_one(path: Path) -> MetadataPosition | None:
    try:
        told = json.loads(path.read_bytes())
        if told["version"] != _VERSION:
            raise ValueError(f"version {told['version']} is not {_VERSION}")
        return MetadataPosition(int(told["offset"]), int(told["history"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        logger.warning("%s cannot be read, and is passed over: %s", path, error)
        return None


def write(folders: Iterable[Path], position: MetadataPosition) -> None:
    """Write it down in every folder. Blocks. A folder that refuses is left to those who need it more."""
    told = {"version": _VERSION, "offset": position.offset, "history": position.history}
    for folder in folders:
        try:
            write_atomically(folder / FILE_NAME, json.dumps(told).encode(), sync=True)
        except KafkaError as error:
            logger.warning("%s", error.message)


def forget(folders: Iterable[Path]) -> None:
    """An operator says that the quorum was put back from copies on purpose. Blocks. Raises OSError."""
    for folder in folders:
        (folder / FILE_NAME).unlink(missing_ok=True)
