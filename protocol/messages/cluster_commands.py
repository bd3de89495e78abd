"""Commands about the cluster as a whole: its formation, and its restoration from copies."""

from __future__ import annotations

from ..schema import Message, array, data, int16, string
from .command import Command, PlainResult
from .user_commands import ScramCredentialChange


@data()
class InitialFeature(Message):
    """A level that is in force from the beginning."""

    feature: str = string(about="Name of the feature.")
    level: int = int16(about="Its level.")


@data()
class FormCluster(Command[PlainResult]):
    """Name the cluster, once."""

    cluster_id: str = string(about="Chosen once, for ever.")
    features: list[InitialFeature] = array(
        InitialFeature, "0+", tag=0, about="Levels of features that are in force from the beginning."
    )
    credentials: list[ScramCredentialChange] = array(
        ScramCredentialChange, "0+", tag=1, about="Passwords of the first users (KIP-900)."
    )


@data()
class DeclareRestored(Command[PlainResult]):
    """An operator has restored the quorum from copies: what it learned after the copies were made is lost."""
