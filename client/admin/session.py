"""What all of the admin client's methods share: the connections, trying again, checking answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Self, TypeVar

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.cluster import DescribeClusterRequest
from ...protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ..connections.cluster import Backoff, Cluster
from ..connections.metadata import ClusterMetadata
from ..failures import VersionUnsupported
from ..lifecycle import Lifecycle

TELLS_FENCED = 2
"""The version of DescribeCluster from which brokers say who is fenced."""
ResultT = TypeVar("ResultT")


class AdminSession:
    """A cluster to ask. `Admin` adds the questions, a class for each theme."""

    def __init__(
        self,
        *,
        bootstrap_servers: str | Sequence[str] = "localhost:9092",
        client_id: str = "ottla-admin",
        request_timeout_ms: int = 30_000,
    ) -> None:
        self._life = Lifecycle("admin client")
        self._reached = Cluster(bootstrap_servers, client_id=client_id, request_timeout_ms=request_timeout_ms)
        self._timeout_ms = request_timeout_ms

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Reach the cluster. Raises NoBrokerReachable."""
        self._life.start()
        try:
            await self._reached.start()
        except BaseException:
            self._life.stopped()
            await self._reached.close()
            raise

    async def stop(self) -> None:
        """Close the connections; idempotent."""
        if self._life.stop():
            self._life.stopped()
            await self._reached.close()

    @property
    def _cluster(self) -> Cluster:
        """For whoever asks it something. Raises ClientClosed after `stop`, RuntimeError before `start` or on another
        loop."""
        self._life.check_here()
        return self._reached

    async def _metadata(self, topics: Iterable[str] | None = None) -> ClusterMetadata:
        """These topics, or all of the cluster, fetched now. One that is not there has an error."""
        metadata = ClusterMetadata()
        named = None if topics is None else [MetadataRequestTopic(name=name) for name in sorted(set(topics))]
        request = MetadataRequest(topics=named, allow_auto_topic_creation=False)
        metadata.update(await self._cluster.ask_any(request))
        return metadata

    async def _brokers_to_ask(self) -> list[int]:
        """The brokers that take part, for questions that go to each of them: Metadata goes on listing one that has just
        died."""
        await self._cluster.refresh()
        known = list(self._cluster.metadata.brokers)
        connection = await self._cluster.any_connection()
        try:
            tells_fenced = connection.version_for(DescribeClusterRequest) >= TELLS_FENCED
        except VersionUnsupported:
            tells_fenced = False
        if not tells_fenced:
            return known
        response = await connection.request(DescribeClusterRequest())
        fenced = {one.broker_id for one in response.brokers if one.is_fenced}
        return [broker_id for broker_id in known if broker_id not in fenced]

    async def _with_retries(self, attempt: Callable[[], Coroutine[None, None, ResultT]]) -> ResultT:
        """Run `attempt` again while it fails with something that time cures."""
        deadline = asyncio.get_running_loop().time() + self._timeout_ms / 1000
        backoff = Backoff(1_000)
        while True:
            try:
                return await attempt()
            except KafkaError as error:
                if not error.code.retriable or asyncio.get_running_loop().time() > deadline:
                    raise
                if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                await asyncio.sleep(backoff.next_s())


def check(code: int, what: str, message: str | None) -> None:
    """Raises KafkaError about `what` unless the code is 0."""
    if code:
        error = ErrorCode.of(code)
        raise KafkaError(error, f"{what}: {message or error.message}")


def error_of(code: int, message: str | None) -> KafkaError | None:
    """A code as an exception that nobody has raised yet; None for 0."""
    if not code:
        return None
    error = ErrorCode.of(code)
    return KafkaError(error, message or error.message)
