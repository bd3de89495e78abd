"""ACLs: rules that allow or deny a principal an operation on resources, from given hosts."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from ...protocol.cluster.acls import (
    Acl,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
)
from ...protocol.messages.acls import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from .admin_base import AdminBase
from .session import check

_PER_REQUEST = 5_000
"""A number of ACLs that brokers certainly accept; they take at most 10,000 in one request."""


class AclAdmin(AdminBase):
    """The methods that create, list and remove ACLs. They raise SECURITY_DISABLED if the cluster has no authorizer."""

    async def create_acls(self, acls: Iterable[Acl]) -> None:
        """Create ACLs; existing ACLs remain.

            await admin.create_acls([
                Acl(AclResourceType.TOPIC, "orders", PatternType.LITERAL, "User:ann", "*", AclOperation.READ,
                    AclPermission.ALLOW),
            ])

        Raises ValueError for a number that is not in its enumeration. Raises KafkaError for the first ACL that is
        refused. The other ACLs of its request are created; a request has up
        to 5,000 ACLs, and later requests are not sent.
        """
        wanted = list(acls)
        for index, acl in enumerate(wanted):
            _check_numbers(f"acls[{index}]", acl)
        for begin in range(0, len(wanted), _PER_REQUEST):
            some = wanted[begin : begin + _PER_REQUEST]
            request = CreateAclsRequest(creations=[_creation(acl) for acl in some])
            connection = await self.session.cluster.any_connection()
            response = await connection.request(request)
            for acl, result in zip(some, response.results, strict=True):
                check(result.error_code, f"ACL {acl}", result.error_message, operation="ALTER")

    async def describe_acls(self, matching: AclFilter | None = None) -> list[Acl]:
        """Return the ACLs that match a filter, or all ACLs, sorted."""
        wanted = matching or AclFilter()
        _check_numbers("matching", wanted)
        request = DescribeAclsRequest(
            resource_type_filter=wanted.resource_type,
            resource_name_filter=wanted.resource_name,
            pattern_type_filter=wanted.pattern_type,
            principal_filter=wanted.principal,
            host_filter=wanted.host,
            operation=wanted.operation,
            permission_type=wanted.permission,
        )
        response = await self.session.cluster.ask_any(request)
        check(response.error_code, "ACLs", response.error_message, operation="DESCRIBE")
        return [
            Acl(
                resource.resource_type,
                resource.resource_name,
                resource.pattern_type,
                acl.principal,
                acl.host,
                acl.operation,
                acl.permission_type,
            )
            for resource in response.resources
            for acl in resource.acls
        ]

    async def delete_acls(self, filters: Iterable[AclFilter]) -> list[Acl]:
        """Remove the ACLs that match any of the filters, in one request. Returns the removed ACLs, sorted."""
        chosen = list(filters)
        for index, matching in enumerate(chosen):
            _check_numbers(f"filters[{index}]", matching)
        request = DeleteAclsRequest(filters=[_filter(matching) for matching in chosen])
        connection = await self.session.cluster.any_connection()
        response = await connection.request(request)
        for result in response.filter_results:
            check(result.error_code, "ACLs", result.error_message, operation="ALTER")
        return sorted(
            {
                Acl(
                    acl.resource_type,
                    acl.resource_name,
                    acl.pattern_type,
                    acl.principal,
                    acl.host,
                    acl.operation,
                    acl.permission_type,
                )
                for result in response.filter_results
                for acl in result.matching_acls
            }
        )


def _check_numbers(where: str, given: Acl | AclFilter) -> None:
    """Raise ValueError for a number of an ACL or a filter that its enumeration does not have. `where` names the
    argument."""
    kinds: dict[str, type[IntEnum]] = {
        "resource_type": AclResourceType,
        "pattern_type": PatternType,
        "operation": AclOperation,
        "permission": AclPermission,
    }
    for name, kind in kinds.items():
        number = getattr(given, name)
        if number not in tuple(kind):
            known = ", ".join(member.name for member in kind)
            raise ValueError(f"{where}.{name} is of {kind.__name__} ({known}), not {number!r}")


def _creation(acl: Acl) -> AclCreation:
    return AclCreation(
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        resource_pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def _filter(wanted: AclFilter) -> DeleteAclsFilter:
    return DeleteAclsFilter(
        resource_type_filter=wanted.resource_type,
        resource_name_filter=wanted.resource_name,
        pattern_type_filter=wanted.pattern_type,
        principal_filter=wanted.principal,
        host_filter=wanted.host,
        operation=wanted.operation,
        permission_type=wanted.permission,
    )
