"""A cluster whose mirrors a test describes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.protocol.cluster.mirror_table import MirrorPhase
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.failback import (
    DescribeLineagesRequest,
    DescribeLineagesResponse,
    FailBackMirrorRequest,
    FailBackMirrorResponse,
    FailedBackTopic,
    LineageTopic,
)
from ottla.protocol.messages.mirrors import (
    AlterMirrorRequest,
    AlterMirrorResponse,
    CreateMirrorRequest,
    CreateMirrorResponse,
    DescribedMirror,
    DescribedMirrorPartition,
    DescribedMirrorTopic,
    DescribeMirrorsRequest,
    DescribeMirrorsResponse,
    MirrorAction,
)
from ottla.protocol.wire.schema import Message, Request
from tests.client.fake_cluster import FakeCluster, Fault

Described = list[DescribedMirror] | None


class Mirroring(FakeCluster):
    """Brokers whose mirrors a test describes. `describe` gets a broker's number; None breaks the connection."""

    def __init__(self) -> None:
        super().__init__("t", 1, lambda: Fault.NONE)
        self.served += [CreateMirrorRequest, AlterMirrorRequest, DescribeMirrorsRequest]
        self.served += [DescribeLineagesRequest, FailBackMirrorRequest]
        self.asked: list[CreateMirrorRequest | AlterMirrorRequest | FailBackMirrorRequest] = []
        #: what brokers tell of their logs, by their numbers, and what becomes of topics that fail back
        self.lineages: dict[int, list[LineageTopic]] = {}
        self.failed_back: list[FailedBackTopic] = []
        self.describe: Callable[[int], Described] = lambda broker: []
        # : errors of the next changes, in reverse order
        self.refusals: list[ErrorCode] = []

    def answer_other(self, broker: int, request: Request[Message], version: int) -> Message | None:
        refusal = ErrorCode.NONE
        if isinstance(request, CreateMirrorRequest | AlterMirrorRequest | FailBackMirrorRequest):
            self.asked.append(request)
            refusal = self.refusals.pop() if self.refusals else ErrorCode.NONE
        message = "for a reason" if refusal else None
        match request:
            case CreateMirrorRequest():
                return CreateMirrorResponse(
                    error_code=refusal, error_message=message, source_cluster_id="there"
                )
            case AlterMirrorRequest():
                return AlterMirrorResponse(error_code=refusal, error_message=message)
            case DescribeLineagesRequest():
                return DescribeLineagesResponse(cluster_id="here", topics=self.lineages.get(broker, []))
            case FailBackMirrorRequest():
                return FailBackMirrorResponse(
                    error_code=refusal,
                    error_message=message,
                    source_cluster_id="there",
                    topics=self.failed_back,
                )
            case DescribeMirrorsRequest():
                assert not request.names, "a broker that has not heard of a mirror yet would refuse all"
                mirrors = self.describe(broker)
                return None if mirrors is None else DescribeMirrorsResponse(mirrors=mirrors)
        return super().answer_other(broker, request, version)

    def actions(self) -> list[tuple[MirrorAction, list[str]]]:
        return [
            (MirrorAction(request.action), request.topics)
            for request in self.asked
            if isinstance(request, AlterMirrorRequest)
        ]


def partition(index: int, leader: int, **fields: Any) -> DescribedMirrorPartition:
    return DescribedMirrorPartition(partition=index, leader=leader, **fields)


def described(*partitions: DescribedMirrorPartition, name: str = "m", **fields: Any) -> DescribedMirror:
    """Return a mirror, with topic `t` if there are partitions."""
    topics = [DescribedMirrorTopic(name="t", topic_id=b"t" * 16, partitions=list(partitions))]
    values: dict[str, Any] = {"phase": MirrorPhase.ACTIVE, **fields}
    return DescribedMirror(name=name, topics=topics if partitions else [], **values)
