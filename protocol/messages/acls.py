"""DescribeAcls (29), CreateAcls (30), DeleteAcls (31): permissions of principals for resources. Numeric codes are
listed in `protocol/cluster/acls.py`."""

from __future__ import annotations

from ..wire.schema import Message, Request, array, data, int8, int16, int32, request, response, string


@data()
class AclDescription(Message):
    """An ACL that was found, without its resource pattern."""

    principal: str = string(about="Principal that the ACL applies to.")
    host: str = string(about="Client host that the ACL applies to.")
    operation: int = int8(about="Operation that is allowed or denied.")
    permission_type: int = int8(about="2 DENY, 3 ALLOW.")


@data()
class DescribeAclsResource(Message):
    """A resource pattern with the ACLs found for it."""

    resource_type: int = int8(about="Type of the protected resources.")
    resource_name: str = string(about="Name of the resource pattern.")
    pattern_type: int = int8(default=3, about="3 LITERAL, 4 PREFIXED.")
    acls: list[AclDescription] = array(AclDescription, about="ACLs of the pattern.")


@response(29, "1-3", flexible="2+")
class DescribeAclsResponse(Message):
    """Answer to DescribeAclsRequest."""

    throttle_time_ms: int = int32(about="How long a quota delayed the request, in ms.")
    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(nullable="0+", about="Explanation for people; null without one.")
    resources: list[DescribeAclsResource] = array(
        DescribeAclsResource, about="Resource patterns with matching ACLs."
    )


@request(29, "1-3", flexible="2+", response=DescribeAclsResponse)
class DescribeAclsRequest(Request[DescribeAclsResponse]):
    """Request to list the ACLs that match a filter."""

    resource_type_filter: int = int8(about="Resource type; 1 for all.")
    resource_name_filter: str | None = string(
        nullable="0+", about="Name of the resource pattern; null for all."
    )
    pattern_type_filter: int = int8(
        default=3, about="Pattern type; 1 for all, 2 for the patterns that cover a resource of this name."
    )
    principal_filter: str | None = string(nullable="0+", about="Principal; null for all.")
    host_filter: str | None = string(nullable="0+", about="Host; null for all.")
    operation: int = int8(about="Operation; 1 for all.")
    permission_type: int = int8(about="Permission; 1 for all.")


@data()
class AclCreationResult(Message):
    """Result of the creation of one ACL."""

    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(nullable="0+", about="Explanation for people; null without one.")


@response(30, "1-3", flexible="2+")
class CreateAclsResponse(Message):
    """Answer to CreateAclsRequest."""

    throttle_time_ms: int = int32(about="How long a quota delayed the request, in ms.")
    results: list[AclCreationResult] = array(
        AclCreationResult, about="Outcomes, in the order of the request."
    )


@data()
class AclCreation(Message):
    """An ACL to create."""

    resource_type: int = int8(about="Type of the protected resources.")
    resource_name: str = string(about="Name of the resource pattern.")
    resource_pattern_type: int = int8(default=3, about="3 LITERAL, 4 PREFIXED.")
    principal: str = string(about="Principal that the ACL applies to.")
    host: str = string(about="Client host that the ACL applies to.")
    operation: int = int8(about="Operation that is allowed or denied.")
    permission_type: int = int8(about="2 DENY, 3 ALLOW.")


@request(30, "1-3", flexible="2+", response=CreateAclsResponse)
class CreateAclsRequest(Request[CreateAclsResponse]):
    """Request to create ACLs, each independently of the others."""

    creations: list[AclCreation] = array(AclCreation, about="ACLs to create.")


@data()
class DeleteAclsMatchingAcl(Message):
    """An ACL that a filter has removed."""

    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(nullable="0+", about="Explanation for people; null without one.")
    resource_type: int = int8(about="Type of the protected resources.")
    resource_name: str = string(about="Name of the resource pattern.")
    pattern_type: int = int8(default=3, about="3 LITERAL, 4 PREFIXED.")
    principal: str = string(about="Principal that the ACL applied to.")
    host: str = string(about="Client host that the ACL applies to.")
    operation: int = int8(about="Operation that was allowed or denied.")
    permission_type: int = int8(about="2 DENY, 3 ALLOW.")


@data()
class DeleteAclsFilterResult(Message):
    """ACLs removed by a filter."""

    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(nullable="0+", about="Explanation for people; null without one.")
    matching_acls: list[DeleteAclsMatchingAcl] = array(DeleteAclsMatchingAcl, about="ACLs that were removed.")


@response(31, "1-3", flexible="2+")
class DeleteAclsResponse(Message):
    """Answer to DeleteAclsRequest."""

    throttle_time_ms: int = int32(about="How long a quota delayed the request, in ms.")
    filter_results: list[DeleteAclsFilterResult] = array(
        DeleteAclsFilterResult, about="Outcomes, in the order of the request."
    )


@data()
class DeleteAclsFilter(Message):
    """A filter that selects ACLs to remove."""

    resource_type_filter: int = int8(about="Resource type; 1 for all.")
    resource_name_filter: str | None = string(
        nullable="0+", about="Name of the resource pattern; null for all."
    )
    pattern_type_filter: int = int8(
        default=3, about="Pattern type; 1 for all, 2 for the patterns that cover a resource of this name."
    )
    principal_filter: str | None = string(nullable="0+", about="Principal; null for all.")
    host_filter: str | None = string(nullable="0+", about="Host; null for all.")
    operation: int = int8(about="Operation; 1 for all.")
    permission_type: int = int8(about="Permission; 1 for all.")


@request(31, "1-3", flexible="2+", response=DeleteAclsResponse)
class DeleteAclsRequest(Request[DeleteAclsResponse]):
    """Request to remove the ACLs that any of its filters matches."""

    filters: list[DeleteAclsFilter] = array(DeleteAclsFilter, about="Filters that select the ACLs to remove.")
