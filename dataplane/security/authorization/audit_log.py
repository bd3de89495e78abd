"""The log of denied requests, in the words of Kafka's authorizer log, and counts of all decisions.

Denials are logged at INFO, permissions at DEBUG. Denied items that an answer merely leaves out are not logged. A denied
client tries again, often many times a second. So equal denials are logged once in ten seconds, with their number since.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from ....protocol.cluster.acls import Acl, AclOperation, name_of, resource_text
from ..peer_session import PeerSession
from .decision import Decision
from .grants import Grants
from .pattern_rules import Requester

logger = logging.getLogger("ottla.authorizer")

REPEATED_AFTER_S: Final = 10.0
_REMEMBERED_MAX: Final = 10_000
_NAMED_MAX: Final = 100

_Denial = tuple[str, str, int, int, str, int]
"""Principal, host, operation, type and name of the resource, API key."""


class Asking(Protocol):
    """A request as the audit log needs it: its API key, client id and session."""

    api_key: int
    client_id: str | None
    session: PeerSession


class AuditLog:
    """The audit log of an authorizer: it counts decisions by operation, and logs denials."""

    def __init__(
        self,
        explain: Callable[[int, str, int, Requester], Decision],
        api_name: Callable[[int], str],
        now_s: Callable[[], float],
    ) -> None:
        """`explain` returns the reason of a decision; `now_s` is a monotonic clock in seconds."""
        self._explain = explain
        self._api_name = api_name
        self._now_s = now_s
        self.allowed = [0] * len(AclOperation)
        """Number of decisions since the start, by operation."""
        self.denied = [0] * len(AclOperation)
        #: time of the last log line of each denial, and the number of repetitions since
        self._last_logged: dict[_Denial, tuple[float, int]] = {}

    def note(
        self,
        request: Asking,
        grants: Grants,
        allowed: bool,
        operation: int,
        resource_type: int,
        name: str,
        *,
        quiet: bool,
    ) -> None:
        """Count a decision about an operation on a resource, and log it: a denial at INFO unless `quiet`, a permission
        at DEBUG.
        """
        if allowed:
            self.allowed[operation] += 1
            if logger.isEnabledFor(logging.DEBUG):
                self._log(logging.DEBUG, request, grants, operation, resource_type, name, 0)
            return
        if quiet:
            return
        self.denied[operation] += 1
        now_s = self._now_s()
        requester = grants.requester
        denial = (requester.principal, requester.host, operation, resource_type, name, request.api_key)
        logged_s, since = self._last_logged.get(denial, (-REPEATED_AFTER_S, 0))
        if now_s - logged_s < REPEATED_AFTER_S:
            self._last_logged[denial] = (logged_s, since + 1)
            return
        if len(self._last_logged) >= _REMEMBERED_MAX:
            self._last_logged.clear()
        self._last_logged[denial] = (now_s, 0)
        self._log(logging.INFO, request, grants, operation, resource_type, name, since)

    def changed(self, request: Asking, what: str, acls: Sequence[Acl]) -> None:
        """Log that the sender of a request changed ACLs; `what` is the verb in the log line, such as "created"."""
        if acls:
            more = f" and {len(acls) - _NAMED_MAX} more" if len(acls) > _NAMED_MAX else ""
            logger.info(
                "Principal = %s from host = %s %s ACLs: %s%s",
                request.session.principal, request.session.host, what, "; ".join(map(str, acls[:_NAMED_MAX])), more,
            )  # fmt: skip

    def _log(
        self,
        level: int,
        request: Asking,
        grants: Grants,
        operation: int,
        resource_type: int,
        name: str,
        since: int,
    ) -> None:
        session = request.session
        decision = self._explain(resource_type, name, operation, grants.requester)
        logger.log(
            level,
            "Principal = %s is %s operation = %s from host = %s on resource = %s for request = %s with "
            "resourceRefCount = 1 based on rule %s; client id = %s, listener = %s, mechanism = %s%s",
            session.principal,
            "Allowed" if decision.allowed else "Denied",
            name_of(AclOperation, operation),
            session.host,
            resource_text(resource_type, name),
            self._api_name(request.api_key),
            decision.rule,
            request.client_id,
            session.listener,
            session.mechanism,
            f"; {since} more like this since the last line" if since else "",
        )
