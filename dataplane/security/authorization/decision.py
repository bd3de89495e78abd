"""The outcome of one authorization, with its reason."""

from __future__ import annotations

from dataclasses import dataclass

from ....protocol.cluster.acls import Acl


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether something is allowed, and by which rule."""

    allowed: bool
    rule: str
    """As Kafka's authorizer logs it: SuperUser, MatchingAcl(...), DefaultAllow or DefaultDeny; and Node."""
    acl: Acl | None = None
    """The ACL that decides, if one does."""
