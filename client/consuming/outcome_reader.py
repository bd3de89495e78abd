"""A reader of parts of partitions, which continues to the markers of the transactions in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ..connections.cluster import Cluster
from ..records import TopicPartition
from .assigned import FetchOptions
from .fetcher import Fetcher
from .outcomes import StretchOutcomes, TransactionOutcome

LANE: Final = "outcomes"
_LOOK_S: Final = 0.2
"""The interval at which failures are checked while no records arrive."""


async def read_outcomes(
    cluster: Cluster,
    fetching: FetchOptions,
    stretches: Mapping[TopicPartition, tuple[int, int]],
    bytes_max: int,
) -> dict[TopicPartition, list[TransactionOutcome]]:
    """Return the outcomes of the transactions that have written into each stretch: the offsets from the first to before
    the second number. See Consumer.transaction_outcomes."""
    reading = {
        partition: StretchOutcomes(begin, end) for partition, (begin, end) in stretches.items() if begin < end
    }
    found: dict[TopicPartition, list[TransactionOutcome]] = {partition: [] for partition in stretches}
    fetcher = Fetcher(cluster, replace(fetching, read_committed=False, reset_timestamp=None), LANE)
    fetcher.assign(reading)
    for partition, outcomes in reading.items():
        fetcher.assigned[partition].seek(outcomes.position)
    fetcher.start()
    bytes_read = 0
    try:
        while reading and bytes_read <= bytes_max:
            await fetcher.wait(_LOOK_S)
            fetcher.raise_failure()
            for partition, outcomes in list(reading.items()):
                state = fetcher.assigned[partition]
                while state.buffer:
                    for header, batch in state.buffer.pop(0).batches():
                        outcomes.add(header, batch)
                        bytes_read += len(batch)
                is_at_end = 0 <= state.high_watermark <= outcomes.position
                if is_at_end or outcomes.is_settled:
                    found[partition] = outcomes.known(is_at_end=is_at_end)
                    state.paused = True
                    del reading[partition]
            fetcher.changed()
    finally:
        await fetcher.stop()
    return found | {partition: outcomes.known(is_at_end=False) for partition, outcomes in reading.items()}
