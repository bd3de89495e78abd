"""The evidence that a fault test shows about a record that is in a log twice."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.dataplane.log.batches import make_batch
from tests.faults.repeated_records import evidence
from tests.histories.operations import FinalRead

pytestmark = pytest.mark.short


def test_each_copy_of_a_record_is_shown_with_its_producer_and_leader_epoch(tmp_path: Path) -> None:
    for broker_id in (2, 3):
        folder = tmp_path / f"broker-{broker_id}" / "t-0"
        folder.mkdir(parents=True)
        batches = [
            make_batch(1, b"twice", producer=(7, 0, 4)),
            make_batch(1, b"once", producer=(7, 0, 5)),
            make_batch(1, b"twice", producer=(7, 1, 0)),
        ]
        for offset, batch in enumerate(batches):
            batch[:8] = offset.to_bytes(8)
            batch[12:16] = (offset + 10).to_bytes(4)
        (folder / "00000000000000000000.log").write_bytes(b"".join(batches))
    cluster: Any = SimpleNamespace(
        directory=tmp_path, partitions=lambda topic: {0: SimpleNamespace(replicas=(2, 3))}
    )
    read = FinalRead("t", 0, [(0, b"twice"), (1, b"once"), (2, b"twice")], end=3, at_s=0)
    lines = evidence(cluster, [read]).splitlines()
    assert len(lines) == 4
    assert "on broker 2: b'twice' at offset 0, " in lines[0]
    assert "producer 7, epoch 0, base sequence 4, leader epoch 10, " in lines[0]
    assert "on broker 2: b'twice' at offset 2, " in lines[1]
    assert "producer 7, epoch 1, base sequence 0, leader epoch 12, " in lines[1]
