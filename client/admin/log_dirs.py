"""The data folders of brokers and the size of the replicas in them."""

from __future__ import annotations

from collections.abc import Iterable

from ...protocol.errors import KafkaError
from ...protocol.messages.log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from ..bounds import BrokerId
from ..records import TopicPartition
from .admin_base import AdminBase
from .session import check, error_of
from .values import LogDirDescription


class LogDirAdmin(AdminBase):
    """The methods that describe the data folders of brokers, and the size of their replicas."""

    async def describe_log_dirs(
        self, brokers: Iterable[BrokerId] | None = None, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[int, list[LogDirDescription] | KafkaError]:
        """Return the data folders of these brokers, or of all, with their replicas; or the broker's error."""
        if brokers is None:
            brokers = sorted(await self.session.brokers_to_ask())
        else:
            await self.session.cluster.refresh()
        topics: dict[str, list[int]] | None = None if partitions is None else {}
        for topic, index in partitions or ():
            assert topics is not None
            topics.setdefault(topic, []).append(index)
        request = DescribeLogDirsRequest(
            topics=None
            if topics is None
            else [DescribableLogDirTopic(topic=name, partitions=some) for name, some in topics.items()]
        )
        described: dict[int, list[LogDirDescription] | KafkaError] = {}
        for broker_id in brokers:
            try:
                described[broker_id] = await self._folders(broker_id, request)
            except KafkaError as error:
                described[broker_id] = error
        return described

    async def partition_sizes(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the size in bytes of the largest replica of each partition; partitions that no broker reports are left
        out."""
        sizes: dict[TopicPartition, int] = {}
        for folders in (await self.describe_log_dirs(partitions=partitions)).values():
            for folder in () if isinstance(folders, KafkaError) else folders:
                for partition, size in folder.replicas.items():
                    sizes[partition] = max(size, sizes.get(partition, 0))
        return sizes

    async def _folders(self, broker_id: int, request: DescribeLogDirsRequest) -> list[LogDirDescription]:
        response = await self.session.cluster.ask(broker_id, request)
        check(response.error_code, f"folders of broker {broker_id}", None, operation="DESCRIBE")
        return [
            LogDirDescription(
                folder.log_dir,
                error_of(folder.error_code, None),
                folder.total_bytes,
                folder.usable_bytes,
                {
                    TopicPartition(topic.name, partition.partition_index): partition.partition_size
                    for topic in folder.topics
                    for partition in topic.partitions
                    if not partition.is_future_key
                },
                folder.is_cordoned,
            )
            for folder in response.results
        ]
