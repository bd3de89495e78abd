"""The formation of a cluster, and the proof that a node belongs to it.

Each folder has a directory id, made when the folder is first used. A node with an empty folder does not vote: its
predecessor may have voted and acknowledged entries, and an empty node could help to elect a leader that is missing
committed entries. The node takes part once every configured peer has answered and all folders were empty together (the
founders), or when an operator replaces it explicitly. A replaced node votes only after it has caught up with a leader.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from .disk import CorruptFile, Disk, read_checked, write_checked
from .messages import Hello

FILE_NAME = "formation"
_MAGIC = b"OTTLFORM"


class WrongFolder(Exception):
    """The folder belongs to another node or cluster, or another process uses it."""


@dataclass(frozen=True, slots=True)
class Formation:
    """The identity and the cluster membership that a folder records. `founders` is empty until the cluster is
    formed."""

    cluster_id: str
    node_id: int
    directory_id: bytes
    founders: Mapping[int, bytes] = field(default_factory=dict)
    catching_up: bool = False
    """True for a node that was replaced, or returned with less than it had acknowledged, and has not caught up yet.
    Such a node does not vote."""

    @property
    def formed(self) -> bool:
        """True if this node takes part."""
        return bool(self.founders)

    @property
    def hello(self) -> Hello:
        """Greeting for a peer."""
        founders = tuple(sorted(self.founders.items()))
        return Hello(self.formed, founders, takes_promises=self.formed, abstains=self.catching_up)

    def replaced(self) -> Formation:
        """Return the formation of a node that replaces a node with a lost folder."""
        return replace(self, founders={self.node_id: self.directory_id}, catching_up=True)


def load(disk: Disk) -> Formation | None:
    """Load the folder's formation; None for an unused folder. Raises CorruptFile."""
    body = read_checked(disk, FILE_NAME, _MAGIC)
    if body is None:
        return None
    try:
        fields = json.loads(body)
        return Formation(
            cluster_id=fields["cluster_id"],
            node_id=fields["node_id"],
            directory_id=bytes.fromhex(fields["directory_id"]),
            founders={int(node): bytes.fromhex(name) for node, name in fields["founders"].items()},
            catching_up=fields["catching_up"],
        )
    except (ValueError, KeyError) as error:
        raise CorruptFile(f"{FILE_NAME}: unreadable content: {error}") from error


def save(disk: Disk, formation: Formation) -> None:
    """Store the formation durably. Blocks."""
    fields = {
        "cluster_id": formation.cluster_id,
        "node_id": formation.node_id,
        "directory_id": formation.directory_id.hex(),
        "founders": {str(node): name.hex() for node, name in formation.founders.items()},
        "catching_up": formation.catching_up,
    }
    write_checked(disk, FILE_NAME, _MAGIC, json.dumps(fields, indent=1).encode())


def prepare(disk: Disk, cluster_id: str, node_id: int, new_directory_id: bytes) -> Formation:
    """Return the folder's formation; an unused folder gets `new_directory_id`. Blocks.

    Raises WrongFolder or CorruptFile.
    """
    formation = load(disk)
    if formation is None:
        if leftovers := [name for name in disk.names() if not name.endswith(".tmp")]:
            raise CorruptFile(
                f"{FILE_NAME} is missing, but the folder holds {leftovers[0]}: restore the folder, or empty it and "
                "replace this node explicitly"
            )
        formation = Formation(cluster_id, node_id, new_directory_id)
        save(disk, formation)
    if formation.node_id != node_id or formation.cluster_id != cluster_id:
        raise WrongFolder(
            f"the folder belongs to node {formation.node_id} of cluster {formation.cluster_id!r}, "
            f"not to node {node_id} of cluster {cluster_id!r}"
        )
    return formation


def check_voters(formation: Formation, voters: Collection[int]) -> None:
    """Refuse a set of quorum nodes that differs from the founders: a smaller set could elect a leader that is missing
    committed entries.

    A node that was replaced, or formed a quorum alone, knows only itself and accepts any set. Raises WrongFolder.
    """
    if len(formation.founders) > 1 and formation.founders.keys() != set(voters):
        raise WrongFolder(
            f"the quorum was formed by the nodes {_listed(formation.founders)}, and controller.quorum.voters has "
            f"{_listed(voters)}: the set of quorum nodes cannot be changed"
        )


def _listed(nodes: Collection[int]) -> str:
    return ", ".join(map(str, sorted(nodes)))


class Gathering:
    """The greetings that the node of an unformed cluster has collected from its peers. Pure."""

    def __init__(self, formation: Formation, peers: frozenset[int]) -> None:
        self._formation = formation
        self._peers = peers
        self._empty: dict[int, bytes] = {}
        self.stranded_by: int | None = None
        """Peer that belongs to a cluster formed without this folder."""

    def hear(self, peer: int, directory_id: bytes, hello: Hello) -> Formation | None:
        """Process a peer's greeting. Return the formation to save if every peer's greeting has arrived now, else
        None."""
        formed_with = dict(hello.founders)
        if hello.formed and formed_with.get(self._formation.node_id) != self._formation.directory_id:
            self.stranded_by = peer
            return None
        if peer in self._peers:
            self._empty[peer] = formed_with.get(peer, directory_id)
        return self.formed()

    def formed(self) -> Formation | None:
        """Return the formation if every peer has answered that its folder is, or was, empty like this one; else
        None."""
        if self.stranded_by is not None or self._empty.keys() != self._peers:
            return None
        founders = {**self._empty, self._formation.node_id: self._formation.directory_id}
        return replace(self._formation, founders=founders)
