"""ACLs: their table, and forms that create and delete them, with the effect of each change in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import Final, TypeVar

from ....protocol.cluster.acls import (
    ANYTHING,
    CLUSTER_NAME,
    Acl,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
    checked_acl,
    name_of,
)
from ....protocol.errors import KafkaError
from ...access_rules import AccessRules, rules_about
from ...area import BadQuestion, Change, Difference, Done, Form, FormField, Outdated, Visit, check_as_shown
from ...bounds import ACLS_DELETED_MAX
from ...commands import command, option
from ...formats import count, counted, link
from ...searching import has_words
from ...sorting import Column
from .acl_effects import effects, warnings_of
from .operations import EVERY_OPERATION, MEANINGS, RESOURCES

CodeT = TypeVar("CodeT", bound=IntEnum)
ANY: Final = "any"
"""The choice of a filter that matches every value of a field."""
_PERMISSIONS: Final = {"allow": AclPermission.ALLOW, "deny": AclPermission.DENY}
_PATTERNS: Final = {"literal": PatternType.LITERAL, "prefixed": PatternType.PREFIXED}
_OPERATIONS: Final = {
    operation.name: operation for operation in AclOperation if operation >= AclOperation.ALL
}
_PATTERN_WORDS: Final = {"literal": "exactly this name", "prefixed": "every name that begins with it"}


@dataclass(frozen=True, slots=True)
class AclRow:
    """An ACL as a table row, with the texts of its fields.

    `deletion` is the URL of the form that deletes the ACL, or empty if forms do not know its type or operation.
    """

    permission: str
    principal: str
    host: str
    operation: str
    resource: str
    pattern: str
    name: str
    deletion: str


COLUMNS: Final = (
    Column[Acl]("principal", "principal", lambda acl: acl.principal),
    Column[Acl]("rule", "rule", lambda acl: acl.permission),
    Column[Acl]("host", "host", lambda acl: acl.host),
    Column[Acl]("operation", "operation", lambda acl: name_of(AclOperation, acl.operation)),
    Column[Acl]("resource", "resource", lambda acl: name_of(AclResourceType, acl.resource_type)),
    Column[Acl]("pattern", "pattern", lambda acl: name_of(PatternType, acl.pattern_type)),
    Column[Acl]("name", "name", lambda acl: acl.resource_name),
)


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
        _deletion_address(acl),
    )


def _deletion_address(acl: Acl) -> str:
    """Return the URL of the form that deletes exactly this ACL."""
    words = {
        "rule": _word(_PERMISSIONS, acl.permission),
        "operation": _word(_OPERATIONS, acl.operation),
        "resource": _word(RESOURCES, acl.resource_type),
        "pattern": _word(_PATTERNS, acl.pattern_type),
    }
    if ANY in words.values():
        return ""
    given = {"principal": acl.principal, "host": acl.host, "of": acl.resource_name}
    return link("/access/acls/delete", **given, **words)


def matching(acls: Sequence[Acl], search: str) -> list[Acl]:
    """Return the ACLs that contain all words of `search` in any field."""
    return [acl for acl in acls if has_words(str(acl), search)]


def _word(codes: Mapping[str, int], code: int) -> str:
    return next((word for word, number in codes.items() if number == code), ANY)


def _chosen(visit: Visit, name: str, codes: Mapping[str, CodeT], default: str) -> CodeT:
    """Return the code of a choice in the form. Raises BadQuestion."""
    chosen = visit.text(name, default)
    if chosen not in codes:
        raise BadQuestion(f"{name!r} is one of {', '.join(codes)}, not {chosen[:40]!r}")
    return codes[chosen]


def _principal(visit: Visit) -> str:
    """Return the principal of the form; a name without a type is a user's. Raises BadQuestion."""
    principal = visit.required("principal")
    return principal if ":" in principal else f"User:{principal}"


# ------------------------------------------------------------ create


async def creation_form(visit: Visit) -> Form:
    """Return the form for new ACLs on a resource whose type the page's query names."""
    resource, kind = _resource(visit)
    fields = [
        FormField(
            name="principal",
            label="principal",
            value=visit.text("principal"),
            placeholder="User:ann",
            hint="User:* stands for every user",
            is_required=True,
        ),
        FormField(name="rule", label="rule", kind="choice", choices=tuple(_PERMISSIONS), value="allow"),
        FormField(
            name="operation",
            label="operations",
            kind="boxes",
            choices=(*(operation.name for operation in MEANINGS[kind]), AclOperation.ALL.name),
            labels={
                operation.name: f"{operation.name}: {meaning}"
                for operation, meaning in MEANINGS[kind].items()
            }
            | {AclOperation.ALL.name: f"{AclOperation.ALL.name}: {EVERY_OPERATION}"},
        ),
    ]
    if kind != AclResourceType.CLUSTER:
        fields += [
            FormField(
                name="of",
                label=f"name of the {resource}",
                value=visit.text("of"),
                hint=f"* stands for every {resource}",
                suggestions=await _names(visit, kind),
                is_required=True,
            ),
            FormField(
                name="pattern",
                label="the rule covers",
                kind="choice",
                choices=tuple(_PATTERNS),
                labels=_PATTERN_WORDS,
                value="literal",
            ),
        ]
    host = FormField(
        name="host",
        label="host",
        value="*",
        hint="an address, a network such as 10.0.0.0/8, or * for every host",
        is_required=True,
    )
    links = {
        f"ACLs on {'the' if other == 'cluster' else 'a'} {other}": link(visit.path, resource=other)
        for other in RESOURCES
        if other != resource
    }
    return Form(f"Create ACLs on a {resource}", [*fields, host], "", links=links)


def _resource(visit: Visit) -> tuple[str, AclResourceType]:
    kind = _chosen(visit, "resource", RESOURCES, "topic")
    return _word(RESOURCES, kind), kind


async def _names(visit: Visit, kind: AclResourceType) -> Sequence[str]:
    if kind != AclResourceType.TOPIC:
        return ()
    return (await visit.sampler.snapshot()).suggested_topics


def acls_of(visit: Visit) -> list[Acl]:
    """Return the ACLs that the form asks to create, one for each operation. Raises BadQuestion, also for an ACL that
    brokers would refuse."""
    _, kind = _resource(visit)
    operations = [*MEANINGS[kind], AclOperation.ALL]
    chosen = [operation for operation in operations if visit.form.get(f"operation {operation.name}") == "yes"]
    if not chosen:
        raise BadQuestion("choose an operation")
    is_of_cluster = kind == AclResourceType.CLUSTER
    first = Acl(
        kind,
        CLUSTER_NAME if is_of_cluster else visit.required("of"),
        PatternType.LITERAL if is_of_cluster else _chosen(visit, "pattern", _PATTERNS, "literal"),
        _principal(visit),
        visit.text("host") or ANYTHING,
        chosen[0],
        _chosen(visit, "rule", _PERMISSIONS, "allow"),
    )
    try:
        first = checked_acl(first)
    except KafkaError as error:
        raise BadQuestion(error.message) from None
    return [first._replace(operation=operation) for operation in chosen]


async def plan_creation(visit: Visit) -> Change:
    """Plan new ACLs. ACLs that exist are left out."""
    wanted = acls_of(visit)
    rules = await _rules_about(visit, wanted)
    if rules.settings is None:
        raise BadQuestion(
            "no authorizer is configured, so the cluster keeps no ACLs; the page Security says how to configure one"
        )
    acls = [acl for acl in wanted if acl not in rules.acls]
    if not acls:
        raise BadQuestion("these ACLs exist already: there is nothing to change")
    differences = _creation(rules, acls)
    return Change(
        title=f"Create {counted(len(acls), 'ACL')}",
        differences=differences,
        carry_out=partial(_create, acls, differences),
        command=creation_command(acls),
        warning=warnings_of(rules, rules.changed(added=acls), acls, user=_own_user(visit)),
    )


async def _rules_about(visit: Visit, acls: Sequence[Acl]) -> AccessRules:
    """Return the rules that cover the resource of these ACLs. Raises KafkaError."""
    return await rules_about(visit.admin, AclFilter(*acls[0][:2], PatternType.MATCH))


def _own_user(visit: Visit) -> str:
    return visit.connection.get("sasl_plain_username") or ""


def _creation(rules: AccessRules, acls: Sequence[Acl]) -> list[Difference]:
    return [
        *(Difference("ACL", None, str(acl)) for acl in acls),
        *effects(rules, rules.changed(added=acls), acls),
    ]


async def _create(acls: Sequence[Acl], shown: Sequence[Difference], visit: Visit) -> Done:
    rules = await _rules_about(visit, acls)
    if existing := [acl for acl in acls if acl in rules.acls]:
        raise Outdated(f"somebody else has created {existing[0]}")
    check_as_shown(shown, _creation(rules, acls))
    await visit.admin.create_acls(acls)
    return Done(f"created for {acls[0].principal}: {counted(len(acls), 'ACL')}", "/access")


def creation_command(acls: Sequence[Acl]) -> str:
    """Return the `ottla acl create` command for ACLs that differ only in their operations."""
    acl = acls[0]
    words = ["--deny"] if acl.permission == AclPermission.DENY else []
    words += option("--principal", acl.principal)
    for of_operation in acls:
        words += option("--operation", name_of(AclOperation, of_operation.operation))
    words += _resource_words(acl.resource_type, acl.resource_name)
    if acl.pattern_type == PatternType.PREFIXED:
        words.append("--prefixed")
    if acl.host != ANYTHING:
        words += option("--host", acl.host)
    return command("acl", "create", options=words)


def _resource_words(kind: int, name: str) -> list[str]:
    if kind == AclResourceType.CLUSTER:
        return ["--cluster"]
    return option(f"--{_word(RESOURCES, kind).replace(' ', '-')}", name)


# ------------------------------------------------------------ delete


async def deletion_form(visit: Visit) -> Form:
    """Return the form with the fields of the ACLs to delete, as the page's query names them."""
    resources, rules, patterns = ((ANY, *codes) for codes in (RESOURCES, _PERMISSIONS, _PATTERNS))
    operations = (ANY, *_OPERATIONS)
    choices = {"rule": rules, "operation": operations, "resource": resources, "pattern": patterns}

    def chosen(name: str, label: str) -> FormField:
        return FormField(
            name=name,
            label=label,
            kind="choice",
            choices=choices[name],
            labels=_PATTERN_WORDS if name == "pattern" else {},
            value=visit.text(name, ANY),
        )

    def typed(name: str, label: str) -> FormField:
        return FormField(name=name, label=label, value=visit.text(name), hint="empty: any")

    return Form(
        "Delete ACLs",
        (
            typed("principal", "principal"),
            chosen("rule", "rule"),
            chosen("operation", "operation"),
            chosen("resource", "resource"),
            typed("of", "name of the resource"),
            chosen("pattern", "the rule covers"),
            typed("host", "host"),
        ),
        "Deletes the ACLs that match all fields. The preview lists them.",
    )


def filter_of(visit: Visit) -> AclFilter:
    """Return the filter of the ACLs that the form asks to delete. Raises BadQuestion."""
    principal, name = visit.text("principal") or None, visit.text("of") or None
    if principal is not None and ":" not in principal:
        principal = f"User:{principal}"
    kind = _chosen(visit, "resource", {ANY: AclResourceType.ANY, **RESOURCES}, ANY)
    if kind == AclResourceType.CLUSTER:
        name = CLUSTER_NAME
    if (kind == AclResourceType.ANY) != (name is None):
        raise BadQuestion("a resource has a type and a name: give both, or neither")
    if principal is None and name is None:
        raise BadQuestion("name a principal or a resource")
    return AclFilter(
        kind,
        name,
        _chosen(visit, "pattern", {ANY: PatternType.ANY, **_PATTERNS}, ANY),
        principal,
        visit.text("host") or None,
        _chosen(visit, "operation", {ANY: AclOperation.ANY, **_OPERATIONS}, ANY),
        _chosen(visit, "rule", {ANY: AclPermission.ANY, **_PERMISSIONS}, ANY),
    )


async def plan_deletion(visit: Visit) -> Change:
    """Plan the deletion of the ACLs that match the form."""
    wanted = filter_of(visit)
    acls = await visit.admin.describe_acls(wanted)
    if not acls:
        raise BadQuestion("no ACL matches")
    if len(acls) > ACLS_DELETED_MAX:
        raise BadQuestion(
            f"{count(len(acls))} ACLs match, and the console deletes {ACLS_DELETED_MAX} at a time: name more fields, "
            "or use the command `ottla acl delete`"
        )
    rules = await rules_about(visit.admin, AclFilter())
    differences = _deletion(rules, acls)
    return Change(
        title=f"Delete {counted(len(acls), 'ACL')}",
        differences=differences,
        carry_out=partial(_delete, acls, differences),
        command=deletion_command(wanted),
        warning=warnings_of(rules, rules.changed(removed=acls), acls, user=_own_user(visit)),
    )


def _deletion(rules: AccessRules, acls: Sequence[Acl]) -> list[Difference]:
    lines = [Difference("ACL", str(acl), None) for acl in acls]
    return [*lines, *effects(rules, rules.changed(removed=acls), acls)]


async def _delete(acls: Sequence[Acl], shown: Sequence[Difference], visit: Visit) -> Done:
    rules = await rules_about(visit.admin, AclFilter())
    there = set(rules.acls)
    if gone := [acl for acl in acls if acl not in there]:
        raise Outdated(f"somebody else has deleted {gone[0]}")
    check_as_shown(shown, _deletion(rules, acls))
    await visit.admin.delete_acls([AclFilter(*acl) for acl in acls])
    return Done(f"deleted: {counted(len(acls), 'ACL')}", "/access")


def deletion_command(wanted: AclFilter) -> str:
    """Return the `ottla acl delete` command for the ACLs that a filter selects."""
    words: list[str] = []
    if wanted.permission != AclPermission.ANY:
        words.append("--deny" if wanted.permission == AclPermission.DENY else "--allow")
    for flag, value in (("--principal", wanted.principal), ("--host", wanted.host)):
        words += [] if value is None else option(flag, value)
    if wanted.operation != AclOperation.ANY:
        words += option("--operation", name_of(AclOperation, wanted.operation))
    if wanted.resource_type != AclResourceType.ANY and wanted.resource_name is not None:
        words += _resource_words(wanted.resource_type, wanted.resource_name)
    if wanted.pattern_type != PatternType.ANY:
        words.append("--prefixed" if wanted.pattern_type == PatternType.PREFIXED else "--literal")
    return command("acl", "delete", options=words)
