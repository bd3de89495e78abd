"""Damaged bytes of the source are not reported as a fault, since another replica of it may have intact ones."""

from __future__ import annotations

from ottla.dataplane.log.placement import place_copied
from tests.dataplane.log.batches import make_batch
from tests.dataplane.mirroring.test_former_leaders import COPIED, Leader, World


class _Damaged(Leader):
    """A leader whose records after the copy's end are damaged until they are repaired."""

    is_whole = False

    def _from(self, offset: int) -> bytes:
        batch = make_batch(1, base_offset=COPIED, leader_epoch=3)
        if not self.is_whole:
            batch[-1] ^= 1
        return bytes(batch) if offset == COPIED else b""


async def test_damaged_bytes_are_asked_for_again_until_they_are_whole() -> None:
    source = _Damaged(10, (3, COPIED))
    world = World(source_epoch=3, source=source)
    world.copy.checked_epoch = 3

    def append_copied(batches: memoryview) -> None:
        log = world.copy.partition.log
        log.log_end_offset = place_copied(batches, "t-0", log.log_end_offset, 4).next_offset

    world.copy.partition.append_copied = append_copied  # type: ignore[method-assign]
    for _ in range(3):
        await world.run_until_it_stops()
        assert "is corrupt" in world.copy.trouble
        world.copy.not_before_s = 0.0
    assert (world.reports, world.copy.log_end) == ([], COPIED)
    source.is_whole = True
    await world.run_until_it_stops()
    assert (world.copy.trouble, world.copy.log_end) == ("", COPIED + 1)
