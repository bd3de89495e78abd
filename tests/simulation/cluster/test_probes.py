"""The answers that the simulation's prober accepts."""

from __future__ import annotations

from ottla.client.records import TopicPartition
from tests.histories.operations import Deleted, History
from tests.simulation.cluster.probes import Batch, refusals_of_a_duplicate

PLACE = TopicPartition("events", 0)
OUT_OF_ORDER = "OUT_OF_ORDER_SEQUENCE_NUMBER"


def test_only_a_batch_whose_record_was_deleted_may_be_out_of_order_when_it_comes_again() -> None:
    history = History()
    history.add(Deleted("events", 1, 100, 1.0))
    history.add(Deleted("orders", 0, 100, 1.0))
    history.add(Deleted("events", 0, 77, 1.0))
    deleted, kept = Batch(6, b"", 76), Batch(7, b"", 77)
    assert OUT_OF_ORDER in refusals_of_a_duplicate(history, PLACE, deleted)
    assert OUT_OF_ORDER not in refusals_of_a_duplicate(history, PLACE, kept)
    assert OUT_OF_ORDER not in refusals_of_a_duplicate(History(), PLACE, deleted)
