"""Batches with unreadable records: compaction copies them unchanged, and goes on with the rest."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from ottla.protocol.records.compression import Compression
from ottla.protocol.records.record import encode_batch
from tests.dataplane.log.compaction.histories import NOW_MS, History, batches, clean, job_for
from tests.poisoned import POISONS, poisoned, sealed


def keyed(number: int) -> bytes:
    return encode_batch([(b"k%d" % (number % 3), b"v%d" % number, NOW_MS)] * 3)


def fill(history: History) -> None:
    for number in range(20):
        history.write([(b"k%d" % (number % 3), b"v%d" % number)])


def deltas_that_lie() -> bytes:
    """Return a batch with right framing and wrong offsets within."""
    batch = bytearray(encode_batch([(b"k0", b"v", NOW_MS), (b"k1", b"v", NOW_MS)]))
    at = 61
    assert batch[at + 3] == 0  # offset delta of the first record
    batch[at + 3] = 0x7E
    return sealed(batch)


def a_bomb_of_claims() -> bytes:
    """Return a compressed batch, whose size does not disprove its claimed number of records."""
    batch = bytearray(encode_batch([(b"k0", b"v" * 100, NOW_MS)] * 3, compression=Compression.LZ4))
    struct.pack_into(">i", batch, 57, 2_000_000_000)
    return sealed(batch)


@pytest.mark.parametrize("kind", [*POISONS, "deltas", "bomb"])
def test_it_is_copied_as_it_is_and_the_rest_is_cleaned(tmp_path: Path, kind: str) -> None:
    if kind in POISONS:
        batch = poisoned(keyed(1), kind)
    else:
        batch = deltas_that_lie() if kind == "deltas" else a_bomb_of_claims()
    history = History(tmp_path)
    fill(history)
    at = history._append(batch)
    fill(history)
    fill(history)
    cleaned = clean(history.log, job_for(history.log, 0))
    assert (cleaned.unreadable_batches, cleaned.first_unreadable_offset) == (1, at)
    left = {header.base_offset: bytes(data) for header, data in batches(history.log)}
    assert left[at][12 + 4 :] == batch[12 + 4 :]  # behind what the log writes itself
    below = [offset for offset in left if offset < history.log.segments[-1].base_offset]
    assert len(below) < 20
    # The batch's keys do not count: the newest readable record of each key is there.
    again = clean(history.log, job_for(history.log, cleaned.clean_offset))
    assert again.clean_offset >= cleaned.clean_offset


def test_keys_that_stand_before_the_damage_are_not_taken_for_newer(tmp_path: Path) -> None:
    """The poisoned records cannot be read, so the older records of their keys must stay."""
    history = History(tmp_path)
    kept = history.write([(b"only here", b"v")])
    batch = encode_batch([(b"only here", b"w", NOW_MS), (b"other", b"w" * 50, NOW_MS)])
    history._append(poisoned(batch, "more records than there are"))
    fill(history)
    fill(history)
    clean(history.log, job_for(history.log, 0))
    assert kept in [header.base_offset for header, _ in batches(history.log)]
