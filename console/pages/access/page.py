"""The page "Security": users, ACLs, checks of single permissions, certificates, and quotas."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from ....client.admin import UserLogin
from ....client.admin.quotas import Entity
from ....protocol.cluster.acls import (
    CLUSTER_NAME,
    Acl,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
    name_of,
)
from ....protocol.errors import ErrorCode, KafkaError
from ...access_rules import EVERYTHING_OPEN, decide
from ...area import BadQuestion, Paged, Rendered, Visit
from ...live.node_readings import NodeReading
from ...searching import has_words
from .quotas import QuotaRow, quota_rows

T = TypeVar("T")
EXPIRES_SOON_S: Final = 30 * 86_400.0
"""Seconds before its expiry at which a certificate is marked."""
RESOURCES: Final[Mapping[str, AclResourceType]] = {
    "topic": AclResourceType.TOPIC,
    "group": AclResourceType.GROUP,
    "transactional id": AclResourceType.TRANSACTIONAL_ID,
    "cluster": AclResourceType.CLUSTER,
    "user": AclResourceType.USER,
    "delegation token": AclResourceType.DELEGATION_TOKEN,
}
OPERATIONS: Final = tuple(operation.name for operation in AclOperation if operation > AclOperation.ALL)


@dataclass(frozen=True, slots=True)
class AclRow:
    """An ACL as a table row, with the texts of its fields."""

    permission: str
    principal: str
    host: str
    operation: str
    resource: str
    pattern: str
    name: str


@dataclass(frozen=True, slots=True)
class CertificateRow:
    """The TLS certificate of a node's listener as a table row.

    `ends_s` is its expiry in seconds since 1970; `left_s` is the seconds until then. `kind` is "bad" if it must be
    renewed now, else "good".
    """

    node: str
    listener: str
    ends_s: float
    left_s: float
    state: str
    kind: str


@dataclass(frozen=True, slots=True)
class AccessVerdict:
    """The brokers' decision whether a user may carry out an operation, and the ACL or setting that decides."""

    is_allowed: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessPage:
    """The data that the template of the page "Security" shows.

    Each `..._trouble` is the reason why a table is missing.
    """

    search: str
    users: Sequence[UserLogin]
    users_trouble: str
    paged: Paged[Acl]
    acls: Sequence[AclRow]
    acls_trouble: str
    has_no_authorizer: bool
    quotas: Sequence[QuotaRow]
    quotas_trouble: str
    certificates: Sequence[CertificateRow]
    has_endpoints: bool
    asked: Mapping[str, str]
    verdict: AccessVerdict | None
    resources: Sequence[str] = tuple(RESOURCES)
    operations: Sequence[str] = OPERATIONS


def acl_row(acl: Acl) -> AclRow:
    """Return the table row of an ACL."""
    return AclRow(
        name_of(AclPermission, acl.permission),
        acl.principal,
        acl.host,
        name_of(AclOperation, acl.operation),
        name_of(AclResourceType, acl.resource_type),
        name_of(PatternType, acl.pattern_type),
        acl.resource_name,
    )


def matching(acls: Sequence[Acl], search: str) -> list[Acl]:
    """Return the ACLs that contain all words of `search` in any field."""
    return [acl for acl in acls if has_words(str(acl), search)]


def certificate_rows(nodes: Mapping[str, NodeReading], now_s: float) -> list[CertificateRow]:
    """Return the table rows of the nodes' TLS certificates, the earliest expiry first.

    `now_s` is in seconds since 1970.
    """
    rows = []
    for node, reading in nodes.items():
        for certificate in reading.certificates:
            state, kind = "valid", "good"
            if certificate.left_s <= 0:
                state, kind = "has expired", "bad"
            elif certificate.left_s < EXPIRES_SOON_S:
                state, kind = "expires soon", "bad"
            rows.append(
                CertificateRow(
                    node, certificate.listener, now_s + certificate.left_s, certificate.left_s, state, kind
                )
            )
    return sorted(rows, key=lambda row: (row.left_s, row.node, row.listener))


async def why(visit: Visit) -> AccessVerdict | None:
    """Return the brokers' decision on the principal, operation and resource in the page's query.

    None without a principal. Raises BadQuestion, KafkaError.
    """
    principal = visit.text("principal")
    if not principal:
        return None
    if ":" not in principal:
        principal = f"User:{principal}"
    kind = RESOURCES.get(visit.text("resource", "topic"))
    if kind is None:
        raise BadQuestion(f"'resource' is one of {', '.join(RESOURCES)}")
    if (wanted := visit.text("operation", "READ")) not in OPERATIONS:
        raise BadQuestion(f"'operation' is one of {', '.join(OPERATIONS)}, not {wanted[:40]!r}")
    name = CLUSTER_NAME if kind is AclResourceType.CLUSTER else visit.required("of")
    decision = await decide(
        visit.admin,
        kind,
        name,
        AclOperation[wanted],
        principal=principal,
        host=visit.text("host") or "127.0.0.1",
    )
    if decision.rule == EVERYTHING_OPEN:
        return AccessVerdict(True, "since there is no authorizer: every client may do everything")
    return AccessVerdict(decision.allowed, f"by {decision.rule}")


async def _told(question: Awaitable[T], otherwise: T) -> tuple[T, str]:
    """Return the cluster's answer and an empty text.

    If the request fails, return `otherwise` and the reason, so that the page's other tables are shown.
    """
    try:
        return await question, ""
    except KafkaError as error:
        return otherwise, error.message


async def _acls(visit: Visit) -> tuple[list[Acl], str, bool]:
    """Return the cluster's ACLs, the reason if there is no answer, and True if no authorizer is configured."""
    try:
        return await visit.admin.describe_acls(), "", False
    except KafkaError as error:
        return [], error.message, error.code == ErrorCode.SECURITY_DISABLED


async def show(visit: Visit) -> Rendered:
    """Return the page "Security"."""
    search, admin = visit.text("q"), visit.admin
    nobody: list[UserLogin] = []
    nothing: list[tuple[Entity, dict[str, float]]] = []
    users, users_trouble = await _told(admin.describe_scram_credentials(), nobody)
    acls, acls_trouble, has_no_authorizer = await _acls(visit)
    quotas, quotas_trouble = await _told(admin.describe_quotas(), nothing)
    snapshot, nodes = await visit.sampler.snapshot(), await visit.sampler.nodes()
    paged = visit.paged(matching(acls, search))
    model = AccessPage(
        search=search,
        users=users,
        users_trouble=users_trouble,
        paged=paged,
        acls=[acl_row(acl) for acl in paged.rows],
        acls_trouble=acls_trouble,
        has_no_authorizer=has_no_authorizer,
        quotas=quota_rows(quotas),
        quotas_trouble=quotas_trouble,
        certificates=certificate_rows(nodes, snapshot.at_s),
        has_endpoints=bool(nodes),
        asked={name: visit.text(name) for name in ("principal", "host", "resource", "operation", "of")},
        verdict=await why(visit),
    )
    return Rendered("Security", "access.html", model)
