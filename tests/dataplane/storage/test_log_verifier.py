"""Rotten bytes in closed segments that no client reads are found, and no intact data is taken for damage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.dataplane.log import LogConfig, PartitionLog
from ottla.dataplane.storage.log_verifier import LogVerifier
from ottla.protocol.errors import KafkaError
from ottla.protocol.records.record import encode_batch


class Replica:
    def __init__(self, log: PartitionLog) -> None:
        self.log = log


@pytest.fixture
def replica(tmp_path: Path) -> Replica:
    """Return a replica of ten records, a few to a segment."""
    log = PartitionLog.open(
        tmp_path / "t-0", LogConfig(segment_bytes=300), clean_shutdown=False, recovery_point=0, now_ms=0
    )
    for number in range(10):
        log.produced.append(memoryview(bytearray(encode_batch([(None, b"%d" % number * 50, 0)]))), 0, 0)
    assert len(log.segments) > 3
    return Replica(log)


async def verified(replica: Replica) -> list[str]:
    """Return the findings of one round."""
    found: list[str] = []

    def condemn(_: Any, error: KafkaError) -> None:
        found.append(error.message)

    await LogVerifier(lambda: [replica], condemn, 1 << 40, 1).verify_all()  # type: ignore[list-item, return-value]
    return found


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 4
    path.write_bytes(content)


async def test_a_log_in_order_is_left_alone(replica: Replica) -> None:
    assert await verified(replica) == []


@pytest.mark.parametrize(
    "position",
    [18, 100, 8, 7, 4, 15, 12, 16],
    ids=["crc", "records", "length", "base offset", "base offset far", "epoch", "epoch far", "magic"],
)
async def test_damage_is_found_wherever_it_is(replica: Replica, position: int) -> None:
    path = replica.log.segments[1].path
    flip(path, position)
    (problem,) = await verified(replica)
    assert problem.startswith(f"{path} is damaged at byte 0")


async def test_the_segment_being_written_is_nobodys_business(replica: Replica) -> None:
    flip(replica.log.segments[-1].path, 100)
    assert await verified(replica) == []
