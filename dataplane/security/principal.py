"""Principals: the names under which a cluster knows its users and nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

USER: Final = "User"
"""The type of everybody who comes as a client."""
NODE: Final = "OttlaNode"
"""The type of whoever has proved to hold the cluster secret. No client can get it."""


@dataclass(frozen=True, slots=True)
class Principal:
    """A name of some type. Both are compared letter by letter."""

    type: str
    name: str

    def __str__(self) -> str:
        """As Kafka writes it: `User:ann`."""
        return f"{self.type}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> Principal:
        """Read `type:name`; a name may contain colons. Raises ValueError."""
        kind, colon, name = text.partition(":")
        if not (kind and colon):
            raise ValueError(f"{text!r} is no principal: it has to be of the form type:name, like User:ann")
        return cls(kind, name)


ANONYMOUS: Final = Principal(USER, "ANONYMOUS")
"""Whoever did not say who it is."""
