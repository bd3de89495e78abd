"""DescribeAcls (1-3), CreateAcls (1-3) and DeleteAcls (1-3): the rights of principals.

Any broker lists the ACLs of its image. The quorum checks and keeps them, and the answer to a change comes once this
broker applies it. Other brokers follow by the metadata feed. Without an authorizer no broker would apply ACLs, so the
answer is SECURITY_DISABLED.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import groupby

from ...protocol.cluster.acls import Acl, AclFilter, AclOperation, checked_filter
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages import acl_commands as commands
from ...protocol.messages.acls import (
    AclCreationResult,
    AclDescription,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from ..quorum.access import Quorum
from ..security.authorization.access import Authorization
from ..security.authorization.needs import cluster
from ..server.error_answers import ErrorAnswers
from ..server.handler import ClientRequest, handles

_TEXT_BYTES_MAX = 8 << 20


class AclHandlers:
    """Shows ACLs, and passes changes to the quorum."""

    def __init__(self, quorum: Quorum, authorization: Authorization | None) -> None:
        self._quorum = quorum
        self._authorization = authorization

    def _enabled(self) -> Authorization:
        if self._authorization is None:
            raise KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
        return self._authorization

    @handles(DescribeAclsRequest, 1, 3, needs=cluster(AclOperation.DESCRIBE))
    async def describe_acls(
        self, request: ClientRequest, message: DescribeAclsRequest
    ) -> DescribeAclsResponse:
        """Return the ACLs that match the filter, grouped by pattern and sorted."""
        self._enabled()
        wanted = checked_filter(
            AclFilter(
                message.resource_type_filter,
                message.resource_name_filter,
                message.pattern_type_filter,
                message.principal_filter,
                message.host_filter,
                message.operation,
                message.permission_type,
            )
        )
        # A thread filters the ACLs, since there may be very many. It gets a copy, as the event loop changes the set.
        found = await asyncio.to_thread(_found, list(self._quorum.image.acls), wanted)
        return DescribeAclsResponse(error_message=None, resources=found)

    @handles(
        CreateAclsRequest,
        1,
        3,
        errors=ErrorAnswers(arrays={"creations": "results"}),
        needs=cluster(AclOperation.ALTER),
    )
    async def create_acls(self, request: ClientRequest, message: CreateAclsRequest) -> CreateAclsResponse:
        """Create each ACL separately. An ACL that exists already is not an error."""
        audit = self._enabled().audit
        entries = [
            commands.AclEntry(
                resource_type=creation.resource_type,
                resource_name=creation.resource_name,
                pattern_type=creation.resource_pattern_type,
                principal=creation.principal,
                host=creation.host,
                operation=creation.operation,
                permission=creation.permission_type,
            )
            for creation in message.creations
        ]
        _check_size(
            f"{creation.resource_name}{creation.principal}{creation.host}" for creation in message.creations
        )
        outcome = await self._quorum.submit(commands.CreateAcls(acls=entries), author=request.session)
        results = list(zip(entries, outcome.results, strict=True))
        audit.changed(
            request, "created", [Acl.of(entry) for entry, result in results if not result.error_code]
        )
        return CreateAclsResponse(
            results=[
                AclCreationResult(error_code=result.error_code, error_message=result.error_message or None)
                for result in outcome.results
            ]
        )

    @handles(
        DeleteAclsRequest,
        1,
        3,
        errors=ErrorAnswers(arrays={"filters": "filter_results"}),
        needs=cluster(AclOperation.ALTER),
    )
    async def delete_acls(self, request: ClientRequest, message: DeleteAclsRequest) -> DeleteAclsResponse:
        """Remove the ACLs that match any filter, all at once."""
        audit = self._enabled().audit
        _check_size(
            f"{given.resource_name_filter}{given.principal_filter}{given.host_filter}"
            for given in message.filters
        )
        outcome = await self._quorum.submit(
            commands.DeleteAcls(filters=[_filter_entry(given) for given in message.filters]),
            author=request.session,
        )
        removed = dict.fromkeys(Acl.of(acl) for result in outcome.results for acl in result.acls)
        audit.changed(request, "removed", list(removed))
        return DeleteAclsResponse(filter_results=[_filter_result(result) for result in outcome.results])


def _check_size(texts: Iterable[str]) -> None:
    """Raise POLICY_VIOLATION if the names in a request about ACLs are too large for one command.

    A request is not split: its texts count as a whole.
    """
    if sum(len(text.encode()) for text in texts) > _TEXT_BYTES_MAX:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION, f"names of ACLs take more than {_TEXT_BYTES_MAX} bytes in one request"
        )


def _found(acls: Iterable[Acl], wanted: AclFilter) -> list[DescribeAclsResource]:
    matching = sorted(filter(wanted.matches, acls))
    return [
        DescribeAclsResource(
            resource_type=resource_type,
            resource_name=name,
            pattern_type=pattern_type,
            acls=[
                AclDescription(
                    principal=acl.principal,
                    host=acl.host,
                    operation=acl.operation,
                    permission_type=acl.permission,
                )
                for acl in some
            ],
        )
        for (resource_type, name, pattern_type), some in groupby(matching, key=lambda acl: acl[:3])
    ]


def _filter_entry(given: DeleteAclsFilter) -> commands.AclFilterEntry:
    return commands.AclFilterEntry(
        resource_type=given.resource_type_filter,
        resource_name=given.resource_name_filter,
        pattern_type=given.pattern_type_filter,
        principal=given.principal_filter,
        host=given.host_filter,
        operation=given.operation,
        permission=given.permission_type,
    )


def _filter_result(result: commands.DeletedAcls) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(
        error_code=result.error_code,
        error_message=result.error_message or None,
        matching_acls=[
            DeleteAclsMatchingAcl(
                error_message=None,
                resource_type=acl.resource_type,
                resource_name=acl.resource_name,
                pattern_type=acl.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in result.acls
        ],
    )
