"""The page "Security": users, ACLs, checks of single permissions, certificates, and quotas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ....protocol.cluster.acls import CLUSTER_NAME, Acl, AclOperation, AclResourceType
from ...access_rules import decide, in_words
from ...area import BadQuestion, Rendered, Visit
from ...live.node_readings import NodeReading
from .acls import COLUMNS as ACL_COLUMNS
from .acls import AclRow, acl_row, matching
from .operations import OPERATIONS, RESOURCES
from .quotas import COLUMNS as QUOTA_COLUMNS
from .quotas import QuotaRow, quota_rows
from .tables import AccessTable, access_table, answered
from .users import COLUMNS as USER_COLUMNS
from .users import UserRow, user_rows

EXPIRES_SOON_S: Final = 30 * 86_400.0
"""Seconds before its expiry at which a certificate is marked."""


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
    """The data that the template of the page "Security" shows."""

    search: str
    users: AccessTable[UserRow]
    acls: AccessTable[Acl]
    rules: Sequence[AclRow]
    has_no_authorizer: bool
    quotas: AccessTable[QuotaRow]
    certificates: Sequence[CertificateRow]
    has_endpoints: bool
    asked: Mapping[str, str]
    verdict: AccessVerdict | None
    resources: Sequence[str] = tuple(RESOURCES)
    operations: Sequence[str] = OPERATIONS


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
    return AccessVerdict(decision.allowed, in_words(decision))


async def show(visit: Visit) -> Rendered:
    """Return the page "Security"."""
    search, admin = visit.text("q"), visit.admin
    users = await answered(admin.describe_scram_credentials())
    acls = await answered(admin.describe_acls())
    quotas = await answered(admin.describe_quotas())
    snapshot, nodes = await visit.sampler.snapshot(), await visit.sampler.nodes()
    table = access_table(visit, "acls", matching(acls.rows, search), ACL_COLUMNS, acls.trouble)
    model = AccessPage(
        search=search,
        users=access_table(visit, "users", user_rows(users.rows), USER_COLUMNS, users.trouble),
        acls=table,
        rules=[acl_row(acl) for acl in table.paged.rows],
        has_no_authorizer=acls.has_no_authorizer,
        quotas=access_table(visit, "quotas", quota_rows(quotas.rows), QUOTA_COLUMNS, quotas.trouble),
        certificates=certificate_rows(nodes, snapshot.at_s),
        has_endpoints=bool(nodes),
        asked={name: visit.text(name) for name in ("principal", "host", "resource", "operation", "of")},
        verdict=await why(visit),
    )
    return Rendered("Security", "access.html", model)
