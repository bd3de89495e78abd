"""`ottla acl`: shows, changes and checks access rules (ACLs)."""

from __future__ import annotations

import argparse
from enum import IntEnum
from typing import TYPE_CHECKING, Final, TypeVar

from ...protocol.cluster.acls import (
    ANYTHING,
    CLUSTER_NAME,
    Acl,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
    check_principal,
    name_of,
)
from ...protocol.errors import KafkaError
from ..arguments.options import (
    Actions,
    CommandParser,
    add_common,
    add_connection,
    add_yes,
    carry_out,
    command_parser,
)
from ..connection.precedence import connection_of
from ..failures import UsageError
from ..terminal.confirmation import confirm, is_asked
from ..terminal.output import none_of, print_json, print_table
from ..terminal.shades import state
from ..terminal.text import note

if TYPE_CHECKING:
    from ...client.admin import Admin
    from ...dataplane.security.authorization.decision import Decision

_RESOURCES = {
    "topic": AclResourceType.TOPIC,
    "group": AclResourceType.GROUP,
    "transactional-id": AclResourceType.TRANSACTIONAL_ID,
    "delegation-token": AclResourceType.DELEGATION_TOKEN,
    "user": AclResourceType.USER,
}
_ALL: Final = AclFilter()
_CodeT = TypeVar("_CodeT", bound=IntEnum)


def parser(name: str) -> CommandParser:
    """Return the parser of `ottla acl`."""
    options = command_parser(
        f"ottla {name}",
        "Show and change access rules (ACLs). Brokers apply them only if authorizer.class.name is set.",
        "  ottla acl create --principal User:ann --operation READ --topic orders\n"
        "  ottla acl list --topic orders\n"
        "  ottla acl check --principal User:ann --host 10.0.0.7 --operation WRITE --topic orders",
    )
    add_connection(options)
    actions = Actions(options, __package__ or "")
    create = actions.add(
        "create",
        "acl:create_acls",
        "Allow or deny operations.",
        "  ottla acl create --principal User:ann --operation READ --topic orders\n"
        "  ottla acl create --principal User:ann --operation READ --group reports- --prefixed\n"
        "  ottla acl create --deny --principal 'User:*' --host 10.0.0.0/8 --operation ALL --topic '*'",
    )
    create.add_argument(
        "--deny", action="store_true", help="deny the operations, even if another ACL allows them"
    )
    listing = actions.add(
        "list",
        "acl:list_acls",
        "List ACLs.",
        "  ottla acl list\n  ottla acl list --principal User:ann\n  ottla acl list --topic orders --covering",
    )
    delete = actions.add(
        "delete",
        "acl:delete_acls",
        "Remove the ACLs that match all options.",
        "  ottla acl delete --principal User:ann --topic orders\n"
        "  ottla acl delete --deny --principal User:ann --operation READ --topic orders --literal",
    )
    add_yes(delete)
    asked = actions.add(
        "check",
        "acl:check_acl",
        "Print whether an operation is allowed, and the rule that decides. Exit code 1 if it is denied.",
        "  ottla acl check --principal User:ann --operation WRITE --topic orders\n"
        "  ottla acl check --principal User:ann --host 10.0.0.7 --operation WRITE --topic orders",
    )
    for action, some in ((create, "append"), (listing, "store"), (delete, "store"), (asked, "store")):
        searches = action in (listing, delete)
        add_resource(action, required=not searches)
        action.add_argument(
            "--principal",
            metavar="TYPE:NAME",
            required=not searches,
            help="such as User:ann; User:* stands for every user",
        )
        action.add_argument(
            "--operation",
            metavar="NAME",
            action=some,
            required=not searches,
            help="such as READ; ALL stands for every operation",
        )
        action.add_argument(
            "--host",
            metavar="HOST",
            help="address of the client (default: any host, *)"
            if action is asked
            else "hosts of clients: *, an address, or a network such as 10.0.0.0/8",
        )
        if action is not asked:
            patterns = action.add_mutually_exclusive_group()
            patterns.add_argument(
                "--prefixed", action="store_true", help="ACLs for all names that begin with the given name"
            )
        if searches:
            patterns.add_argument(
                "--literal", action="store_true", help="only ACLs for exactly the given name"
            )
            permissions = action.add_mutually_exclusive_group()
            permissions.add_argument("--allow", action="store_true", help="only ACLs that allow operations")
            permissions.add_argument("--deny", action="store_true", help="only ACLs that deny operations")
            action.add_argument(
                "--covering", action="store_true", help="all ACLs that apply to a resource of this name"
            )
        add_common(action)
    return options


run = carry_out


def add_resource(action: argparse.ArgumentParser, *, required: bool) -> None:
    """Add the options that name an ACL's resource: `--topic`, `--group` and so on, of which one may be given."""
    group = action.add_mutually_exclusive_group(required=required)
    for kind in _RESOURCES:
        group.add_argument(
            f"--{kind}", metavar="NAME", help=f"the {kind.replace('-', ' ')} of this name; * stands for all"
        )
    group.add_argument("--cluster", action="store_true", help="the cluster as a whole")


def resource_of(arguments: argparse.Namespace) -> tuple[AclResourceType, str] | None:
    """Return the type and name of the resource that the options of `ottla acl` name, or None if they name none."""
    if arguments.cluster:
        return AclResourceType.CLUSTER, CLUSTER_NAME
    for kind, code in _RESOURCES.items():
        name = getattr(arguments, kind.replace("-", "_"))
        if name is not None:
            return code, name
    return None


def principal_of(arguments: argparse.Namespace) -> str | None:
    """Return the principal that the options of `ottla acl` name, or None if they name none.

    Raises UsageError for a name without its type.
    """
    principal: str | None = arguments.principal
    if principal is not None:
        try:
            check_principal(principal)
        except KafkaError:
            raise UsageError(
                f"--principal takes TYPE:NAME, such as User:ann, not {principal!r}: "
                f"no {'type' if ':' in principal else 'colon'} is present"
            ) from None
    return principal


def filter_of(arguments: argparse.Namespace) -> AclFilter:
    """Return the filter of the ACLs that `list` and `delete` select. Raises UsageError."""
    resource = resource_of(arguments)
    if arguments.covering and (resource is None or arguments.prefixed or arguments.literal):
        raise UsageError("--covering needs the name of a resource, and neither --prefixed nor --literal")
    pattern = PatternType.ANY
    if arguments.covering:
        pattern = PatternType.MATCH
    elif arguments.prefixed or arguments.literal:
        pattern = PatternType.PREFIXED if arguments.prefixed else PatternType.LITERAL
    permission = AclPermission.ANY
    if arguments.allow or arguments.deny:
        permission = AclPermission.DENY if arguments.deny else AclPermission.ALLOW
    kind, name = (AclResourceType.ANY, None) if resource is None else resource
    operation = AclOperation.ANY if arguments.operation is None else _code(AclOperation, arguments.operation)
    return AclFilter(kind, name, pattern, principal_of(arguments), arguments.host, operation, permission)


def acls_of(arguments: argparse.Namespace) -> list[Acl]:
    """Return the ACLs to create, one for each given operation. Raises UsageError if no resource is named."""
    resource = resource_of(arguments)
    if resource is None:
        raise UsageError("an ACL needs a resource: --topic, --group, --cluster, ...")
    principal = principal_of(arguments)
    assert principal is not None, "the callers require one"
    return [
        Acl(
            *resource,
            PatternType.PREFIXED if arguments.prefixed else PatternType.LITERAL,
            principal,
            arguments.host or "*",
            _code(AclOperation, operation),
            AclPermission.DENY if arguments.deny else AclPermission.ALLOW,
        )
        for operation in arguments.operation
    ]


def create_acls(arguments: argparse.Namespace) -> None:
    """Create an ACL for each given operation, and print the ACLs."""
    from ..run_client import run_client

    acls = acls_of(arguments)

    async def create() -> None:
        async with _admin(arguments) as admin:
            await admin.create_acls(acls)

    run_client(create())
    print_acls(arguments, acls)


def list_acls(arguments: argparse.Namespace) -> None:
    """Print the ACLs that match the options."""
    from ..run_client import run_client

    wanted = filter_of(arguments)

    async def describe() -> list[Acl]:
        async with _admin(arguments) as admin:
            return await admin.describe_acls(wanted)

    print_acls(arguments, run_client(describe()), wanted)


def delete_acls(arguments: argparse.Namespace) -> None:
    """Remove the ACLs that match the options after a confirmation, and print them."""
    from ..run_client import run_client

    wanted = filter_of(arguments)

    async def describe() -> list[Acl]:
        async with _admin(arguments) as admin:
            return await admin.describe_acls(wanted)

    async def delete() -> list[Acl]:
        async with _admin(arguments) as admin:
            return await admin.delete_acls([wanted])

    found = run_client(describe())
    if found:
        if is_asked(yes=arguments.yes):
            for acl in found:
                note(f"  {acl}")
        these = "this ACL" if len(found) == 1 else f"these {len(found)} ACLs"
        confirm(f"Remove {these}?", yes=arguments.yes)
        found = run_client(delete())
    print_acls(arguments, found, wanted)


def check_acl(arguments: argparse.Namespace) -> int:
    """Print whether the brokers allow a principal an operation on a resource, and the ACL or setting that decides.

    Return 1 if it is denied.
    """
    from ...console.access_rules import decide as decide_by_rules
    from ...console.access_rules import in_words
    from ..run_client import run_client

    resource = resource_of(arguments)
    assert resource is not None, "the parser requires one"
    host = arguments.host or ANYTHING
    principal, operation = principal_of(arguments), _code(AclOperation, arguments.operation)
    assert principal is not None, "the parser requires one"
    if operation <= AclOperation.ALL:
        raise UsageError("check takes one operation")

    async def decide() -> Decision:
        async with _admin(arguments) as admin:
            return await decide_by_rules(admin, *resource, operation, principal=principal, host=host)

    decision = run_client(decide())
    reason = in_words(decision)
    verdict = "allowed" if decision.allowed else "denied"
    if arguments.output == "json":
        print_json([{"result": verdict, "rule": decision.rule, "reason": reason, "host": host}])
    else:
        print_table(("RESULT", "RULE"), [(state(verdict), reason)])
        if host == ANYTHING:
            note(
                "from any host (*): ACLs for single hosts and networks do not count; --host names an address"
            )
        if operation is AclOperation.IDEMPOTENT_WRITE and not decision.allowed:
            note("WRITE on a topic suffices to write idempotently")
    return 0 if decision.allowed else 1


def _admin(arguments: argparse.Namespace) -> Admin:
    from ...client.admin import Admin

    return Admin(**connection_of(arguments))


def _code(kind: type[_CodeT], name: str) -> _CodeT:
    """Return the member of an ACL enumeration with this name, in upper or lower case, with dashes or underscores.

    Raises UsageError.
    """
    from ...protocol.nearest import nearest

    known = [member.name for member in kind if member.value > 1]
    wanted = name.upper().replace("-", "_")
    if wanted not in known:
        meant = nearest(wanted, known)
        raise UsageError(
            f"{name} is no operation: " + (f"did you mean {meant}?" if meant else ", ".join(known))
        )
    return kind[wanted]


def print_acls(arguments: argparse.Namespace, acls: list[Acl], wanted: AclFilter = _ALL) -> None:
    """Print the ACLs as a table or as JSON; `wanted` is the filter that selected them."""
    rows = [
        (
            name_of(AclPermission, acl.permission),
            acl.principal,
            acl.host,
            name_of(AclOperation, acl.operation),
            name_of(AclResourceType, acl.resource_type),
            name_of(PatternType, acl.pattern_type),
            acl.resource_name,
        )
        for acl in acls
    ]
    if arguments.output == "json":
        fields = (
            "permission",
            "principal",
            "host",
            "operation",
            "resource_type",
            "pattern_type",
            "resource_name",
        )
        print_json([dict(zip(fields, row, strict=True)) for row in rows])
    else:
        print_table(
            ("PERMISSION", "PRINCIPAL", "HOST", "OPERATION", "RESOURCE", "PATTERN", "NAME"),
            rows,
            spare=("HOST", "PATTERN"),
            empty=none_of("ACLs", asked=wanted != _ALL),
            wide=arguments.output == "wide",
        )
