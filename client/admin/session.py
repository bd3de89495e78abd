"""The part that all methods of the admin client share: connections, retries, and checks of answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import TypeVar

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.cluster import DescribeClusterRequest
from ...protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ..backoff import Backoff
from ..connections.cluster import Cluster
from ..connections.metadata import ClusterMetadata
from ..failures import VersionUnsupported, cluster_error
from ..lifecycle import Lifecycle
from ..security.security import Security

TELLS_FENCED = 2
"""The version of DescribeCluster from which brokers report which brokers are fenced."""
ResultT = TypeVar("ResultT")


class AdminSession:
    """The connections of one admin client. Each theme sends its requests through it."""

    def __init__(
        self,
        *,
        bootstrap_servers: str | Sequence[str],
        client_id: str,
        request_timeout_ms: int,
        security: Security | None,
    ) -> None:
        self._life = Lifecycle("admin client")
        self._reached = Cluster(
            bootstrap_servers,
            client_id=client_id,
            request_timeout_ms=request_timeout_ms,
            security=security,
        )
        self.timeout_ms = request_timeout_ms
        """Time in ms that the cluster may take to answer a request, and for which `with_retries` tries again."""

    async def start(self) -> None:
        """Connect to the cluster. Raises NoBrokerReachable."""
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
    def cluster(self) -> Cluster:
        """The cluster to send requests to. Raises ClientClosed after `stop`, and RuntimeError before `start` or on
        another loop."""
        self._life.check_here()
        return self._reached

    async def metadata(self, topics: Iterable[str] | None = None) -> ClusterMetadata:
        """Fetch the metadata of these topics, or of all topics. A topic that does not exist has an error."""
        metadata = ClusterMetadata()
        named = None if topics is None else [MetadataRequestTopic(name=name) for name in sorted(set(topics))]
        request = MetadataRequest(topics=named, allow_auto_topic_creation=False)
        await self.cluster.ask_metadata(request, metadata)
        return metadata

    async def brokers_to_ask(self) -> list[int]:
        """Return the ids of the live brokers, for requests to every broker.

        Metadata still lists a broker that has just died, so fenced brokers are left out if the cluster reports them.
        """
        await self.cluster.refresh()
        known = list(self.cluster.metadata.brokers)
        connection = await self.cluster.any_connection()
        try:
            tells_fenced = connection.version_for(DescribeClusterRequest) >= TELLS_FENCED
        except VersionUnsupported:
            tells_fenced = False
        if not tells_fenced:
            return known
        response = await connection.request(DescribeClusterRequest())
        fenced = {broker.broker_id for broker in response.brokers if broker.is_fenced}
        return [broker_id for broker_id in known if broker_id not in fenced]

    async def of_each_broker(
        self, ask: Callable[[int], Coroutine[None, None, ResultT]], *, patience_ms: int = 0
    ) -> dict[int, ResultT | KafkaError]:
        """Return the answer of each live broker, or its error. All brokers are asked concurrently.

        A broker that may answer later is asked again for `patience_ms`.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + patience_ms / 1000

        async def answer(broker_id: int) -> ResultT | KafkaError:
            backoff = Backoff(1_000)
            while True:
                try:
                    return await ask(broker_id)
                except KafkaError as error:
                    if not error.code.retriable or loop.time() >= deadline:
                        return error
                await asyncio.sleep(backoff.next_s())

        brokers = sorted(await self.brokers_to_ask())
        return dict(zip(brokers, await asyncio.gather(*map(answer, brokers)), strict=True))

    async def with_retries(self, attempt: Callable[[], Coroutine[None, None, ResultT]]) -> ResultT:
        """Run `attempt` until it succeeds.

        Raises its KafkaError if that is not retriable, names an unknown topic, or comes after `timeout_ms`.
        """
        deadline = asyncio.get_running_loop().time() + self.timeout_ms / 1000
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


def check(code: int, what: str, message: str | None, *, operation: str = "", name: str = "") -> None:
    """Raise KafkaError for a broker's error code unless the code is 0; `what` names the subject in its message.
    `operation` is the operation that was attempted on the topic, group or other resource of this `name`."""
    if code:
        raise cluster_error(ErrorCode.of(code), what, message, operation=operation, name=name)


def error_of(
    code: int, message: str | None, *, what: str = "", operation: str = "", name: str = ""
) -> KafkaError | None:
    """Return the exception about `what` for an error code, without raising it; None for 0."""
    return cluster_error(ErrorCode.of(code), what, message, operation=operation, name=name) if code else None
