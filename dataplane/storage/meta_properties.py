"""The file `meta.properties`, which names the cluster and node that a data folder belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from ...protocol.errors import ErrorCode, KafkaError
from ..log.checkpoints import decode_uuid, encode_uuid
from ..log.durable_files import write_atomically
from ..log.storage_errors import disk_error

FILE_NAME = "meta.properties"


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The identity of a data folder: the cluster and node that it belongs to, and its own id (`directory_id`, 16
    bytes).
    """

    cluster_id: str
    node_id: int
    directory_id: bytes

    @classmethod
    def read(cls, directory: Path) -> Self | None:
        """Read the identity of the data folder `directory`; None if it has no such file yet.

        Raises KafkaError: KAFKA_STORAGE_ERROR if the file cannot be read or understood.
        """
        path = directory / FILE_NAME
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except UnicodeDecodeError:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} is damaged: it is not text") from None
        except OSError as error:
            raise disk_error("read", path, error) from error
        values = {}
        for line in text.splitlines():
            key, separator, value = line.partition("=")
            if separator and not line.lstrip().startswith("#"):
                values[key.strip()] = value.strip().replace("\\", "")
        try:
            if values["version"] != "1":
                raise ValueError(f"version {values['version']} is not 1")
            return cls(values["cluster.id"], int(values["node.id"]), decode_uuid(values["directory.id"]))
        except KeyError as missing:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} lacks {missing.args[0]}") from None
        except ValueError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} is damaged: {error}") from None

    def write(self, directory: Path) -> None:
        """Write the file `meta.properties` into `directory`. Raises KafkaError: KAFKA_STORAGE_ERROR."""
        text = (
            "#\n"
            f"cluster.id={self.cluster_id}\n"
            f"directory.id={encode_uuid(self.directory_id)}\n"
            f"node.id={self.node_id}\n"
            "version=1\n"
        )
        write_atomically(directory / FILE_NAME, text.encode(), sync=True)

    def check(self, directory: Path, cluster_id: str, node_id: int) -> None:
        """Check that the folder belongs to this cluster and node.

        Raises KafkaError: INCONSISTENT_CLUSTER_ID, which names the folder's owner and the node that asked.
        """
        if (self.cluster_id, self.node_id) != (cluster_id, node_id):
            raise KafkaError(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"data folder {directory} belongs to node {self.node_id} of cluster {self.cluster_id}, "
                f"not node {node_id} of cluster {cluster_id}; give this node a folder of its own",
            )
