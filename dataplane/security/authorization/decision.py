"""The outcome of an authorization, with its reason."""

from __future__ import annotations

from dataclasses import dataclass

from ....protocol.cluster.acls import Acl


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision: whether an operation is allowed, and by which rule."""

    allowed: bool
    rule: str
    """Rule in the words of Kafka's authorizer log: SuperUser, MatchingAcl(...), DefaultAllow or DefaultDeny; Ottla adds
    Node."""
    acl: Acl | None = None
    """The ACL of MatchingAcl; None for the other rules."""
