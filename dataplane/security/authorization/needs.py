"""The rights that each API needs, declared beside its handler. An API without a declaration is denied to every client.

Rights for the request as a whole are checked before its handler is called. If rights concern single items, or one of
several rights is enough, the handler checks them, and the declaration has a text about that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from ....protocol.cluster.acls import CLUSTER_NAME, AclOperation, AclResourceType, resource_text
from .access import Access


@dataclass(frozen=True, slots=True)
class Right:
    """One needed right: an operation on the resource of a type that the request names, such as its group."""

    operation: AclOperation
    resource_type: AclResourceType
    name: Callable[[Any], str]


@dataclass(frozen=True, slots=True)
class Needs:
    """The rights that a client must have to call an API."""

    rights: tuple[Right, ...] = ()
    """Rights for the request as a whole."""
    asked: str = ""
    """Text about the rights that the handler checks."""

    def __and__(self, other: Needs) -> Needs:
        """Return the needs for an API that requires these rights and the rights of `other`."""
        return Needs(self.rights + other.rights, "; ".join(filter(None, (self.asked, other.asked))))

    @property
    def text(self) -> str:
        """The description of the needed rights for the documentation page of all APIs."""
        rights = [
            f"{right.operation.name} {resource_text(right.resource_type, '').partition(':')[0]}"
            for right in self.rights
        ]
        return "; ".join([*rights, *([self.asked] if self.asked else [])])

    def check(self, access: Access, message: Any) -> None:
        """Raise KafkaError for the first right that the sender of the message does not have."""
        for right in self.rights:
            access.check(right.operation, right.resource_type, right.name(message))


NOTHING: Final = Needs(asked="nothing")
"""The needs of an API that every client may use."""


def cluster(operation: AclOperation) -> Needs:
    """Return the need for an operation on the cluster."""
    return Needs((Right(operation, AclResourceType.CLUSTER, lambda _: CLUSTER_NAME),))


def group(operation: AclOperation) -> Needs:
    """Return the need for an operation on the group that the request names."""
    return Needs((Right(operation, AclResourceType.GROUP, lambda message: message.group_id),))


def transactional_id(operation: AclOperation) -> Needs:
    """Return the need for an operation on the transactional id that the request names."""
    return Needs(
        (Right(operation, AclResourceType.TRANSACTIONAL_ID, lambda message: message.transactional_id),)
    )


def handler_asks(what: str) -> Needs:
    """Return the needs of an API whose handler checks the rights itself; `what` describes them for the
    documentation.
    """
    return Needs(asked=what)
