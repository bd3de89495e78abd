"""Answers for a batch that cannot be appended: none denies a batch that is in the log."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.dataplane.log.produced import ProducedBatches
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.compression import Compression

from .test_validation_queue import batch, running


class Faulty:
    """A follower's session that fails at every notification."""

    def records_arrived(self) -> None:
        raise RuntimeError("planted")

    high_watermark_moved = log_start_moved = role_changed = records_arrived


@pytest.mark.parametrize("stored", ["producer", "gzip"])
async def test_after_a_fault_behind_the_append_the_outcome_is_unknown(tmp_path: Path, stored: str) -> None:
    async with running(tmp_path) as bench:
        bench.store_as(stored)
        partition = bench.shelf.replica("t", 0)
        partition.watchers[99] = Faulty()
        bench.send(batch(0, 10, Compression.NONE), batch(0, 10, Compression.NONE))
        assert [response.error_code for response in await bench.answer()] == [ErrorCode.REQUEST_TIMED_OUT, 0]
        del partition.watchers[99]
        bench.send(batch(0, 10, Compression.NONE))
        (again,) = await bench.answer()
        assert (again.error_code, again.base_offset) == (0, 0)
        assert len(bench.stored()) == 1


async def test_after_a_fault_before_the_append_the_batch_is_not_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as bench:

        def faulty(*_arguments: object) -> None:
            raise RuntimeError("planted")

        monkeypatch.setattr(ProducedBatches, "append", faulty)
        bench.send(batch(0, 10, Compression.NONE))
        assert (await bench.answer())[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        monkeypatch.undo()
        bench.send(batch(0, 10, Compression.NONE))
        assert (await bench.answer())[0].error_code == 0


async def test_a_refusal_tells_where_the_log_starts(tmp_path: Path) -> None:
    """Without the log start the Java client repeats a batch that was refused with UNKNOWN_PRODUCER_ID until its
    timeout.
    """
    async with running(tmp_path) as bench:
        for number in range(2):
            bench.send(batch(number, 10, Compression.NONE), acks=-1)
            await bench.answer()
        bench.shelf.replica("t", 0).log.advance_log_start_offset(3)
        bench.send(batch(5, 10, Compression.NONE))
        (refused,) = await bench.answer()
        assert refused.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert (refused.base_offset, refused.log_start_offset) == (-1, 3)
