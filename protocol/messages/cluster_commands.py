"""Commands about the cluster as a whole: its formation, and its restoration from copies."""

from __future__ import annotations

from ..schema import data, string
from .command import Command, PlainResult


@data()
class FormCluster(Command[PlainResult]):
    """Name the cluster, once."""

    cluster_id: str = string(about="Chosen once, for ever.")


@data()
class DeclareRestored(Command[PlainResult]):
    """An operator has restored the quorum from copies: what it learned after the copies were made is lost."""
