"""The effects of transactions on the durable states of records that members have acknowledged in them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final

from .states import AcknowledgeType, DurableState, Pending, StateBatch

TYPES: Final = {
    DurableState.ACKNOWLEDGED: AcknowledgeType.ACCEPT,
    DurableState.ARCHIVED: AcknowledgeType.GAP,
    DurableState.AVAILABLE: AcknowledgeType.RELEASE,
}
"""Types of acknowledgements with these durable states as their effect. A restored rejection writes no dead letter."""


def committed(first: int, last: int, state: Pending) -> StateBatch:
    """Return the durable state of a range after the commit of its transaction.

    A release changes it only afterwards, with the leader's next write.
    """
    if state.type is AcknowledgeType.RELEASE:
        return StateBatch(first, last, DurableState.AVAILABLE, state.delivery_count - 1)
    is_accepted = state.type is AcknowledgeType.ACCEPT
    return StateBatch(first, last, DurableState.ACKNOWLEDGED if is_accepted else DurableState.ARCHIVED)


def finished_parts(first: int, last: int, batches: Sequence[StateBatch]) -> Iterator[tuple[int, int, bool]]:
    """Yield the parts of a range, each with whether the durable states say that it is finished."""
    index = bisect_left(batches, first, key=lambda batch: batch.last)
    while first <= last:
        while index < len(batches) and batches[index].state is DurableState.AVAILABLE:
            index += 1
        if index == len(batches) or batches[index].first > last:
            yield first, last, False
            return
        batch = batches[index]
        if first < batch.first:
            yield first, batch.first - 1, False
        yield max(first, batch.first), min(last, batch.last), True
        first, index = batch.last + 1, index + 1
