"""The short cut takes a follower's single batch exactly if the full path appends it unchanged."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from ottla.dataplane.log.placement import place_fetched, single_fetched
from ottla.protocol.errors import KafkaError
from ottla.protocol.records.record_batch import (
    CONTROL_FLAG,
    HEADER_SIZE,
    LOG_APPEND_TIME_FLAG,
    TRANSACTIONAL_FLAG,
)

from .batches import make_batch

END, LATEST_EPOCH = 1000, 5


def by_the_long_way(data: bytes, leader_epoch: int | None) -> object:
    """Return the header, if the batch comes alone, leaves no gap and is no control batch."""
    try:
        placed = place_fetched(memoryview(data), "t-0", END, LATEST_EPOCH, leader_epoch)
    except KafkaError:
        return None
    if len(placed.batches) != 1 or placed.has_gaps:
        return None
    ((_, base_offset, header, _),) = placed.batches
    assert (base_offset, placed.next_offset) == (END, header.next_offset)
    return None if header.attributes & CONTROL_FLAG else header


def fetched(
    count: int, base_offset: int, epoch: int, attributes: int, producer: tuple[int, int, int]
) -> bytearray:
    return make_batch(
        count, b"value", base_offset=base_offset, leader_epoch=epoch, attributes=attributes, producer=producer
    )


BATCHES = st.builds(
    fetched,
    st.integers(1, 4),
    st.sampled_from([END, END, END, END - 1, END + 1]),
    st.integers(LATEST_EPOCH - 1, LATEST_EPOCH + 3),
    st.sampled_from(
        [0, 0, LOG_APPEND_TIME_FLAG, TRANSACTIONAL_FLAG, CONTROL_FLAG, CONTROL_FLAG | TRANSACTIONAL_FLAG]
    ),
    st.sampled_from([(-1, -1, -1), (7, 0, 3)]),
)
EPOCHS = st.none() | st.integers(LATEST_EPOCH, LATEST_EPOCH + 2)


@given(st.lists(BATCHES, max_size=2), EPOCHS)
@example([fetched(2, END, LATEST_EPOCH, 0, (-1, -1, -1))], LATEST_EPOCH)
def test_whole_batches(batches: list[bytearray], leader_epoch: int | None) -> None:
    data = b"".join(batches)
    assert single_fetched(memoryview(data), END, LATEST_EPOCH, leader_epoch) == by_the_long_way(
        data, leader_epoch
    )


@given(BATCHES, EPOCHS, st.data())
def test_damaged_batches(batch: bytearray, leader_epoch: int | None, data: st.DataObject) -> None:
    """A cut, a byte that is another in the header or behind it, or bytes behind the end."""
    kind = data.draw(st.sampled_from(["cut", "flip", "longer"]))
    if kind == "cut":
        del batch[data.draw(st.integers(0, len(batch) - 1)) :]
    elif kind == "flip":
        last = data.draw(st.sampled_from([HEADER_SIZE, len(batch)])) - 1
        batch[data.draw(st.integers(0, last))] ^= data.draw(st.integers(1, 255))
    else:
        batch += data.draw(st.binary(min_size=1, max_size=70))
    found = single_fetched(memoryview(batch), END, LATEST_EPOCH, leader_epoch)
    assert found == by_the_long_way(bytes(batch), leader_epoch)


def test_a_sound_batch_takes_the_short_way() -> None:
    batch = fetched(3, END, LATEST_EPOCH + 1, 0, (7, 0, 3))
    header = single_fetched(memoryview(batch), END, LATEST_EPOCH, LATEST_EPOCH + 1)
    assert header is not None
    assert header.next_offset == END + 3
