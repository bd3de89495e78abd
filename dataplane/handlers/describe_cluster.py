"""DescribeCluster (0-2): the brokers of the cluster in this broker's image."""

from __future__ import annotations

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from ..cluster.authorized_operations import CLUSTER_OPERATIONS, OPERATIONS_NOT_ASKED_FOR
from ..cluster.endpoints import controller_id, live_endpoints, registered_endpoint
from ..cluster.listed_brokers import ListedBrokers
from ..quorum.access import Quorum
from ..security.authorization.access import cluster_operations
from ..security.authorization.needs import handler_asks
from ..server.handler import ClientRequest, handles

_BROKERS, _CONTROLLERS = 1, 2
_FIRST_WITH_FENCED = 2


class DescribeClusterHandlers:
    """Describes the cluster from the image."""

    def __init__(self, quorum: Quorum, own_broker_id: int, listed: ListedBrokers) -> None:
        self._quorum = quorum
        self._own_broker_id = own_broker_id
        self._listed = listed

    @handles(DescribeClusterRequest, 0, 2, needs=handler_asks("nothing; DESCRIBE Cluster for the operations"))
    def describe_cluster(
        self, request: ClientRequest, message: DescribeClusterRequest
    ) -> DescribeClusterResponse:
        """Return the brokers that Metadata lists, or all registered brokers if the client asks for fenced brokers.

        A request for the controllers' endpoints is an error, since this is a broker.
        """
        if message.endpoint_type == _CONTROLLERS:
            raise KafkaError(
                ErrorCode.MISMATCHED_ENDPOINT_TYPE,
                "The request was sent to an endpoint of type BROKER, "
                "but we wanted an endpoint of type CONTROLLER",
            )
        if message.endpoint_type != _BROKERS:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
                f"endpoint type {message.endpoint_type}: allowed are 1 and 2",
            )
        image = self._quorum.image
        everyone = (broker for _, broker in sorted(image.brokers.items()))
        brokers = everyone if message.include_fenced_brokers else self._listed.in_order(image)
        tells_fenced = request.api_version >= _FIRST_WITH_FENCED
        operations = OPERATIONS_NOT_ASKED_FOR
        if message.include_cluster_authorized_operations:
            operations = cluster_operations(request.access) & CLUSTER_OPERATIONS
        return DescribeClusterResponse(
            cluster_id=image.cluster_id,
            controller_id=controller_id(list(live_endpoints(image, request.listener)), self._own_broker_id),
            brokers=[
                DescribeClusterBroker(
                    broker_id=found.broker_id,
                    host=found.host,
                    port=found.port,
                    rack=found.rack,
                    is_fenced=broker.fenced and tells_fenced,
                    machine=broker.host,
                    fenced_since_ms=broker.fenced_since_ms,
                )
                for broker in brokers
                if (found := registered_endpoint(broker, request.listener)) is not None
            ],
            cluster_authorized_operations=operations,
        )
