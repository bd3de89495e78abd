"""Consumer groups."""

from __future__ import annotations

from collections.abc import Iterable

from ...protocol.messages.find_coordinator import FindCoordinatorRequest
from ...protocol.messages.groups import DescribedGroup, DescribeGroupsRequest, ListGroupsRequest
from ..metadata import BrokerAddress
from .session import AdminSession, check
from .values import GroupListing


class GroupAdmin(AdminSession):
    """Lists and describes groups."""

    async def list_groups(self) -> list[GroupListing]:
        """The consumer groups of all brokers, in order of their names."""
        await self._cluster.refresh()
        found: dict[str, GroupListing] = {}
        for broker_id in list(self._cluster.metadata.brokers):
            response = await self._cluster.ask(broker_id, ListGroupsRequest())
            check(response.error_code, f"groups of broker {broker_id}", None)
            for group in response.groups:
                found[group.group_id] = GroupListing(group.group_id, group.protocol_type, group.group_state)
        return [found[name] for name in sorted(found)]

    async def describe_groups(self, names: Iterable[str]) -> list[DescribedGroup]:
        """State and members of groups, each asked of its coordinator."""
        described: list[DescribedGroup] = []
        for name in names:

            async def once(name: str = name) -> None:
                coordinator = await self._coordinator(name)
                response = await self._cluster.ask(coordinator, DescribeGroupsRequest(groups=[name]))
                for group in response.groups:
                    check(group.error_code, f"group {name!r}", None)
                    described.append(group)

            await self._with_retries(once)
        return described

    async def _coordinator(self, group_id: str) -> int:
        connection = await self._cluster.any_connection()
        version = connection.version_for(FindCoordinatorRequest, at_most=3)  # version 4 asks for many keys
        response = await connection.request(FindCoordinatorRequest(key=group_id, key_type=0), version=version)
        check(response.error_code, f"group {group_id!r}", response.error_message)
        self._cluster.metadata.learn_broker(BrokerAddress(response.node_id, response.host, response.port))
        return response.node_id
