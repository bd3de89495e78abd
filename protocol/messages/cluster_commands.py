"""Commands about the cluster as a whole: its formation, and its restoration from copies."""

from __future__ import annotations

from ..wire.schema import Message, array, data, int16, string
from .command import Command, PlainResult
from .user_commands import ScramCredentialChange


@data()
class InitialFeature(Message):
    """A feature with the level that is in force from the cluster's formation on."""

    feature: str = string(about="Name of the feature.")
    level: int = int16(about="Level of the feature.")


@data()
class FormCluster(Command[PlainResult]):
    """Command of the first leader of a new quorum: give the cluster its id, once."""

    cluster_id: str = string(about="Id of the cluster, chosen once and for ever.")
    features: list[InitialFeature] = array(
        InitialFeature, "0+", tag=0, about="Levels of features that are in force from the beginning."
    )
    credentials: list[ScramCredentialChange] = array(
        ScramCredentialChange, "0+", tag=1, about="Passwords of the first users (KIP-900)."
    )


@data()
class DeclareRestored(Command[PlainResult]):
    """Command of an operator who has restored the quorum from copies; metadata written after the copies were made is
    lost."""
