"""Evidence about records that are in a log twice: the batches that contain them, as each replica has them.

Different producer ids or epochs mean that the client sent the record again under a new identity. The same id and epoch
mean that a leader did not recognise a batch that it got again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from ottla.protocol.records.record import decode_records
from ottla.protocol.records.record_batch import walk_batches
from tests.cluster import RunningCluster
from tests.histories.operations import FinalRead
from tests.integration.history import segment_files


def repeated_values(reads: Iterable[FinalRead]) -> dict[tuple[str, int], set[bytes]]:
    """Return the values that reads from the beginning to the end found more than once, by topic and partition."""
    found: dict[tuple[str, int], Counter[bytes]] = {}
    for read in reads:
        found.setdefault((read.topic, read.partition), Counter()).update(value for _, value in read.records)
    return {
        place: repeated
        for place, counts in found.items()
        if (repeated := {value for value, count in counts.items() if count > 1})
    }


def batches_with(cluster: RunningCluster, topic: str, partition: int, values: set[bytes]) -> Iterator[str]:
    """Yield a line about each record with one of these values, in the files of each replica."""
    for broker_id in cluster.partitions(topic)[partition].replicas:
        for segment in segment_files(cluster, broker_id, topic, partition):
            data = memoryview(segment.read_bytes())
            for position, header in walk_batches(data):
                for number, record in enumerate(decode_records(data[position : position + header.size])):
                    if record.value in values:
                        yield (
                            f"{topic}-{partition} on broker {broker_id}: {record.value!r} at offset "
                            f"{header.base_offset + number}, in the batch at {header.base_offset} of producer "
                            f"{header.producer_id}, epoch {header.producer_epoch}, base sequence "
                            f"{header.base_sequence}, leader epoch {header.partition_leader_epoch}, "
                            f"latest timestamp {header.max_timestamp}"
                        )


def evidence(cluster: RunningCluster, reads: Iterable[FinalRead]) -> str:
    """Return the batches with repeated values of these reads, one record a line."""
    return "\n".join(
        line
        for (topic, partition), values in repeated_values(reads).items()
        for line in batches_with(cluster, topic, partition, values)
    )
