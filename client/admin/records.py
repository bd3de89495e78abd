"""Methods that look up offsets of partitions and delete records, by requests to the leaders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from ...protocol.errors import KafkaError
from ...protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ...protocol.messages.list_offsets import EARLIEST as EARLIEST
from ...protocol.messages.list_offsets import LATEST as LATEST
from ...protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ..bounds import Within
from ..records import TopicPartition
from .admin_base import AdminBase
from .leader_requests import ask_leaders
from .session import error_of

TO_THE_END = -1
Time = Annotated[int, Within(0, besides=((LATEST, "LATEST"), (EARLIEST, "EARLIEST")))]
End = Annotated[int, Within(0, besides=((TO_THE_END, "the end of the partition"),))]
Found = dict[TopicPartition, int | KafkaError]


class RecordAdmin(AdminBase):
    """The methods that look up offsets and delete records."""

    async def list_offsets(
        self, timestamps: Mapping[TopicPartition, Time], *, read_committed: bool = False
    ) -> Found:
        """Return the offset of the first record at or after each timestamp (ms, EARLIEST or LATEST).

        -1 means that there is no such record; a KafkaError says why the leader did not answer. With `read_committed`
        LATEST is the last stable offset, else the high watermark.

            offsets = await admin.list_offsets({TopicPartition("orders", 0): EARLIEST})
        """

        async def ask(leader: int, some: list[TopicPartition]) -> Found:
            topics: dict[str, list[ListOffsetsPartition]] = {}
            for partition in some:
                asked = ListOffsetsPartition(
                    partition_index=partition.partition, timestamp=timestamps[partition]
                )
                topics.setdefault(partition.topic, []).append(asked)
            request = ListOffsetsRequest(
                replica_id=-1,
                isolation_level=int(read_committed),
                topics=[ListOffsetsTopic(name=n, partitions=p) for n, p in topics.items()],
            )
            response = await self.session.cluster.ask(leader, request)
            return {
                TopicPartition(topic.name, partition.partition_index): error_of(partition.error_code, None)
                or partition.offset
                for topic in response.topics
                for partition in topic.partitions
            }

        return await ask_leaders(self.session, timestamps, ask)

    async def delete_records(self, before: Mapping[TopicPartition, End]) -> Found:
        """Delete the records below each offset; TO_THE_END deletes all records.

        Returns the new log start offsets, or the errors.

            starts = await admin.delete_records({TopicPartition("orders", 0): TO_THE_END})
        """

        async def ask(leader: int, some: list[TopicPartition]) -> Found:
            topics: dict[str, list[DeleteRecordsPartition]] = {}
            for partition in some:
                asked = DeleteRecordsPartition(partition_index=partition.partition, offset=before[partition])
                topics.setdefault(partition.topic, []).append(asked)
            request = DeleteRecordsRequest(
                topics=[DeleteRecordsTopic(name=n, partitions=p) for n, p in topics.items()],
                timeout_ms=self.session.timeout_ms,
            )
            response = await self.session.cluster.ask(leader, request)
            return {
                TopicPartition(topic.name, partition.partition_index): error_of(partition.error_code, None)
                or partition.low_watermark
                for topic in response.topics
                for partition in topic.partitions
            }

        return await ask_leaders(self.session, before, ask)
