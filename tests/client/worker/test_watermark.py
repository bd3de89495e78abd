"""Finished offsets of a partition, and their text beside a commit, compared with a model that keeps every offset."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as some

from ottla.client.worker.commit_metadata import (
    BYTES_MAX,
    PREFIX,
    TEXT_MAX,
    BeyondCommit,
    bytes_at_most,
    decode,
    encode,
    encode_first,
    encoded_bytes,
)
from ottla.client.worker.watermark import FinishedOffsets

TOPIC = bytes(range(16))


class Model:
    """The watermark and the runs by brute force: the state of each offset that was taken."""

    def __init__(self, begin: int) -> None:
        self.begin = self.position = begin
        self.done: dict[int, bool] = {}

    def take(self, offset: int) -> None:
        self.done[offset] = False
        self.position = offset + 1

    @property
    def watermark(self) -> int:
        open_offsets = [offset for offset, done in self.done.items() if not done]
        return min(open_offsets, default=self.position)

    def covered(self) -> set[int]:
        """Return the taken offsets beyond the watermark that are finished."""
        return {offset for offset, done in self.done.items() if done and offset > self.watermark}


def within(runs: list[tuple[int, int]], offsets: set[int]) -> set[int]:
    return {offset for offset in offsets for start, end in runs if start <= offset < end}


@given(
    begin=some.integers(0, 1 << 40),
    steps=some.lists(some.one_of(some.integers(1, 4), some.floats(0, 1, exclude_max=True)), max_size=80),
)
def test_the_watermark_is_the_lowest_unfinished_offset(begin: int, steps: list[float]) -> None:
    """Whole numbers take a record that many offsets further; fractions finish one of the unfinished records."""
    model, finished = Model(begin), FinishedOffsets(begin)
    for step in steps:
        unfinished = [offset for offset, done in model.done.items() if not done]
        if isinstance(step, int):
            offset = model.position + step - 1
            model.take(offset)
            assert not finished.take(offset, 3)
        elif unfinished:
            offset = unfinished[int(step * len(unfinished))]
            model.done[offset] = True
            finished.finish(offset)
        assert finished.watermark == model.watermark
        assert finished.unfinished == sum(not done for done in model.done.values())
        runs = finished.runs()
        assert within(runs, set(model.done)) == model.covered()
        assert finished.run_count == len(runs) <= finished.unfinished + 1
        beyond = BeyondCommit(TOPIC, finished.watermark, tuple(finished.epochs()), tuple(runs))
        assert encoded_bytes(beyond) <= bytes_at_most(len(runs), len(beyond.epochs), finished.span)
        assert not runs or decode(encode(beyond)) == beyond

    # A successor that resumes there gets each unfinished record, and skips each finished record.
    successor = FinishedOffsets(finished.watermark, finished.runs(), finished.epochs())
    for offset, done in sorted(model.done.items()):
        if offset >= finished.watermark:
            assert successor.fits(offset, 3)
            assert successor.take(offset, 3) == done
    assert successor.watermark == model.watermark


@given(
    sizes=some.lists(some.tuples(some.integers(0, 2), some.integers(1, 5)), max_size=20),
    stop=some.floats(0, 1),
)
def test_records_are_taken_and_finished_together_as_they_are_one_by_one(
    sizes: list[tuple[int, int]], stop: float
) -> None:
    """Pairs are the gap before a read, and the number of its records. The first part of the offsets is finished."""
    together, alone, taken = FinishedOffsets(5), FinishedOffsets(5), []
    for gap, size in sizes:
        begin = alone.position + gap
        assert together.take_all(begin, begin + size, 3)
        for offset in range(begin, begin + size):
            assert not alone.take(offset, 3)
            taken.append(offset)
    done = taken[: int(stop * len(taken))]
    if done:
        together.finish_all(done[0], done[-1], len(done))
    for offset in done:
        alone.finish(offset)
    for offset in taken[len(done) :]:
        for each in (together, alone):
            each.finish(offset)
        assert (together.watermark, together.unfinished) == (alone.watermark, alone.unfinished)
        assert (together.runs(), together.epochs()) == (alone.runs(), alone.epochs())
    with pytest.raises(KeyError):
        together.finish(together.position - 1)


def test_a_log_that_was_cut_gives_its_new_records_back() -> None:
    finished = FinishedOffsets(10, [(12, 20), (25, 30)], [(10, 4)])
    for offset in (10, 11):
        assert not finished.take(offset, 4)
        finished.finish(offset)
    assert finished.watermark == 12  # Records beyond the position may be other records by now.
    assert finished.take(12, 4)
    assert not finished.fits(13, 5)
    finished.cut(13)
    assert not finished.take(13, 5)
    assert finished.watermark == 13
    assert finished.runs() == []
    assert not finished.take(26, 5)


@given(some.binary(max_size=60) | some.text(max_size=60))
def test_hostile_text_is_refused(text: bytes | str) -> None:
    shown = text if isinstance(text, str) else text.decode("latin-1")
    for hostile in (shown, PREFIX + shown):
        with pytest.raises(ValueError, match=r"^it"):
            decode(hostile)


def test_a_changed_character_is_noticed() -> None:
    text = encode(BeyondCommit(TOPIC, 1_000, ((1_000, 7),), ((1_001, 1_005), (1_010, 2_000))))
    for at in range(len(text)):
        for character in "Ab9-":
            if text[at] != character:
                with pytest.raises(ValueError, match=r"^it"):
                    decode(text[:at] + character + text[at + 1 :])
    with pytest.raises(ValueError, match="characters"):
        decode(PREFIX + "A" * TEXT_MAX)
    assert encode(BeyondCommit(TOPIC, 5, (), ())) == ""


def test_the_first_runs_are_kept_if_not_all_fit() -> None:
    chance = random.Random(1)
    starts = sorted(chance.sample(range(1, 100_000), 3_000))
    beyond = BeyondCommit(TOPIC, 0, ((0, 1),), tuple((start * 3, start * 3 + 1) for start in starts))
    assert encoded_bytes(beyond) > BYTES_MAX
    with pytest.raises(ValueError, match="3000 runs"):
        encode(beyond)
    text, left_out = encode_first(beyond)
    assert len(text) <= TEXT_MAX
    kept = decode(text).runs
    assert kept == beyond.runs[: len(kept)]
    assert len(kept) == 3_000 - left_out > 900
