"""DescribeAcls (29), CreateAcls (30), DeleteAcls (31): who may do what. Codes are those of `protocol/acls.py`."""

from __future__ import annotations

from ..schema import Message, Request, array, data, int8, int16, int32, request, response, string


@data()
class AclDescription(Message):
    """One of the `acls` of DescribeAclsResource."""

    principal: str = string(about="Whom the ACL is about.")
    host: str = string(about="From where.")
    operation: int = int8(about="What is done.")
    permission_type: int = int8(about="2 DENY, 3 ALLOW.")


@data()
class DescribeAclsResource(Message):
    """One of the `resources` of DescribeAclsResponse."""

    resource_type: int = int8(about="What is protected.")
    resource_name: str = string(about="Name of the pattern.")
    pattern_type: int = int8(default=3, about="3 LITERAL, 4 PREFIXED.")
    acls: list[AclDescription] = array(AclDescription, about="The ACLs of the pattern.")


@response(29, "1-3", flexible="2+")
class DescribeAclsResponse(Message):
    """Answer to DescribeAclsRequest."""

    throttle_time_ms: int = int32(about="How long a quota delayed the request, in ms.")
    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(nullable="0+", about="Explanation for people; null without one.")
    resources: list[DescribeAclsResource] = array(DescribeAclsResource, about="Patterns that have such ACLs.")


@request(29, "1-3", flexible="2+", response=DescribeAclsResponse)
class DescribeAclsRequest(Request[DescribeAclsResponse]):
    """Lists the ACLs that a filter finds."""

    resource_type_filter: int = int8(about="1 for all.")
    resource_name_filter: str | None = string(nullable="0+", about="Null for all.")
    pattern_type_filter: int = int8(
        default=3, about="1 for all, 2 for those that cover a resource of this name."
    )
    principal_filter: str | None = string(nullable="0+", about="Null for all.")
    host_filter: str | None = string(nullable="0+", about="Null for all.")
    operation: int = int8(about="1 for all.")
    permission_type: int = int8(about="1 for all.")


@data()
class AclCreationResult(Message):
    """One of the `results` of CreateAclsResponse."""

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
    """One of the `creations` of CreateAclsRequest."""

    resource_type: int = int8(about="What is protected.")
    resource_name: str = string(about="Name of the pattern.")
    resource_pattern_type: int = int8(default=3, about="3 LITERAL, 4 PREFIXED.")
    principal: str = string(about="Whom the ACL is about.")
    host: str = string(about="From where.")
    operation: int = int8(about="What is done.")
    permission_type: int = int8(about="2 DENY, 3 ALLOW.")


@request(30, "1-3", flexible="2+", response=CreateAclsResponse)
class CreateAclsRequest(Request[CreateAclsResponse]):
    """Creates ACLs, each on its own."""

    creations: list[AclCreation] = array(AclCreation, about="The ACLs.")


@data()
class DeleteAclsMatchingAcl(Message):
    """One of the `matching_acls` of DeleteAclsFilterResult."""

    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(nullable="0+", about="Explanation for people; null without one.")
    resource_type: int = int8(about="What was protected.")
    resource_name: str = string(about="Name of the pattern.")
    pattern_type: int = int8(default=3, about="3 LITERAL, 4 PREFIXED.")
    principal: str = string(about="Whom the ACL was about.")
    host: str = string(about="From where.")
    operation: int = int8(about="What was done.")
    permission_type: int = int8(about="2 DENY, 3 ALLOW.")


@data()
class DeleteAclsFilterResult(Message):
    """One of the `filter_results` of DeleteAclsResponse."""

    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(nullable="0+", about="Explanation for people; null without one.")
    matching_acls: list[DeleteAclsMatchingAcl] = array(DeleteAclsMatchingAcl, about="ACLs that are removed.")


@response(31, "1-3", flexible="2+")
class DeleteAclsResponse(Message):
    """Answer to DeleteAclsRequest."""

    throttle_time_ms: int = int32(about="How long a quota delayed the request, in ms.")
    filter_results: list[DeleteAclsFilterResult] = array(
        DeleteAclsFilterResult, about="Outcomes, in the order of the request."
    )


@data()
class DeleteAclsFilter(Message):
    """One of the `filters` of DeleteAclsRequest."""

    resource_type_filter: int = int8(about="1 for all.")
    resource_name_filter: str | None = string(nullable="0+", about="Null for all.")
    pattern_type_filter: int = int8(
        default=3, about="1 for all, 2 for those that cover a resource of this name."
    )
    principal_filter: str | None = string(nullable="0+", about="Null for all.")
    host_filter: str | None = string(nullable="0+", about="Null for all.")
    operation: int = int8(about="1 for all.")
    permission_type: int = int8(about="1 for all.")


@request(31, "1-3", flexible="2+", response=DeleteAclsResponse)
class DeleteAclsRequest(Request[DeleteAclsResponse]):
    """Removes the ACLs that any of its filters finds."""

    filters: list[DeleteAclsFilter] = array(DeleteAclsFilter, about="The filters.")
