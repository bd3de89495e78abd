"""Principals: the names under which a cluster knows its users and nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

USER: Final = "User"
"""The type of all clients' principals."""
NODE: Final = "OttlaNode"
"""The type of peers that have proved to hold the cluster secret. No client can get it."""


@dataclass(frozen=True, slots=True)
class Principal:
    """The name under which a user or node is known, with its type, such as `User:ann`. Both are compared exactly."""

    type: str
    name: str

    def __str__(self) -> str:
        """Return the principal in Kafka's form: `User:ann`."""
        return f"{self.type}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> Principal:
        """Read a principal from the text `type:name`; the name may contain colons. Raises ValueError."""
        kind, colon, name = text.partition(":")
        if not (kind and colon):
            raise ValueError(f"{text!r} is no principal: it has to be of the form type:name, like User:ann")
        return cls(kind, name)


ANONYMOUS: Final = Principal(USER, "ANONYMOUS")
"""The principal of a peer that did not authenticate itself."""
