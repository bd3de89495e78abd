"""What each API needs: declared beside its handler, so that an API that declares nothing is denied to everybody.

Rights that a request needs as a whole are checked before its handler is called. Where single items need rights, or one
of several will do, the handler asks, and the declaration says what it asks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from ....protocol.cluster.acls import CLUSTER_NAME, AclOperation, AclResourceType, resource_text
from .access import Access


@dataclass(frozen=True, slots=True)
class Right:
    """An operation with the one resource of its type that a request names."""

    operation: AclOperation
    resource_type: AclResourceType
    name: Callable[[Any], str]


@dataclass(frozen=True, slots=True)
class Needs:
    """All that an API needs."""

    rights: tuple[Right, ...] = ()
    """For the request as a whole."""
    asked: str = ""
    """What the handler asks for itself."""

    def __and__(self, other: Needs) -> Needs:
        """Both."""
        return Needs(self.rights + other.rights, "; ".join(filter(None, (self.asked, other.asked))))

    @property
    def text(self) -> str:
        """As the page of all APIs says it."""
        rights = [
            f"{right.operation.name} {resource_text(right.resource_type, '').partition(':')[0]}"
            for right in self.rights
        ]
        return "; ".join([*rights, *([self.asked] if self.asked else [])])

    def check(self, access: Access, message: Any) -> None:
        """Raises KafkaError for the first right that the sender of the message lacks."""
        for right in self.rights:
            access.check(right.operation, right.resource_type, right.name(message))


NOTHING: Final = Needs(asked="nothing")
"""Everybody may ask."""


def cluster(operation: AclOperation) -> Needs:
    """An operation with the cluster."""
    return Needs((Right(operation, AclResourceType.CLUSTER, lambda _: CLUSTER_NAME),))


def group(operation: AclOperation) -> Needs:
    """An operation with the group of the request."""
    return Needs((Right(operation, AclResourceType.GROUP, lambda message: message.group_id),))


def transactional_id(operation: AclOperation) -> Needs:
    """An operation with the transactional id of the request."""
    return Needs(
        (Right(operation, AclResourceType.TRANSACTIONAL_ID, lambda message: message.transactional_id),)
    )


def handler_asks(what: str) -> Needs:
    """The handler itself asks for this."""
    return Needs(asked=what)
