"""Runs that end at any moment: only whole cuts count, their chains have every record, and a pruning keeps them so.

The model keeps a partition's log as a list, and copies it into segments as a backup does, with interruptions, lost
leases, uncertain answers of the store, deletions at the source, and unclean elections.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.backup.catalog import Catalog, EpochFile, catalog_of, chosen_cut
from ottla.client.backup.chains import chain_of, epoch_end, extended
from ottla.client.backup.cut_file import BackedPartition, BackedTopic, CutFile
from ottla.client.backup.names import CutId, CutName, PartitionFolder, SegmentName
from ottla.client.backup.plans import NeededSegments, cuts_to_prune
from ottla.client.failures import BackupUnusable

TOPIC = b"t" * 16


@dataclass
class Model:
    """A source with one partition, a store, and the run that has the lease."""

    chance: random.Random
    log: list[int] = field(default_factory=list)
    start: int = 0
    next_value: int = 0
    segments: dict[SegmentName, list[int]] = field(default_factory=dict)
    cuts: dict[CutName, CutFile] = field(default_factory=dict)
    expected: dict[CutId, list[int]] = field(default_factory=dict)
    epoch: EpochFile = field(default_factory=lambda: EpochFile(0, ""))
    reached: BackedPartition = field(default_factory=lambda: BackedPartition(0, 0, 0, 0, 0, ()))
    number: int = 0
    losses: int = 0
    copied: dict[tuple[int, int], int] = field(default_factory=dict)
    """The records in the store, by generation and offset."""

    def catalog(self) -> Catalog:
        return catalog_of(self.epoch, self.cuts)

    def take_over(self) -> None:
        """Begin the next epoch."""
        catalog = self.catalog()
        self.epoch = EpochFile(self.epoch.epoch + 1, "", catalog.closed())
        newest = self.catalog().newest
        empty = BackedPartition(0, 0, self.start, self.start, self.losses, ())
        self.reached = empty if newest is None else self.cuts[newest].topics[0].partitions[0]
        self.number = 0

    def write(self) -> None:
        for _ in range(self.chance.randint(1, 8)):
            self.log.append(self.next_value)
            self.next_value += 1

    def delete(self) -> None:
        self.start = self.chance.randint(self.start, len(self.log))

    def lose(self) -> None:
        """Lose the end of the log, as after an unclean election. The source then writes other records."""
        del self.log[self.chance.randint(self.start, len(self.log)) :]
        self.losses += 1

    def cut(self, epoch: int) -> None:
        """Copy what is new, in segments, and write the cut unless the run ends before."""
        self.number += 1
        cut = CutId(epoch, self.number)
        if self.reached.leader_epoch != self.losses:
            if not self.has_copied_log():
                self.reached = BackedPartition(0, self.reached.generation + 1, self.start, self.start, 0, ())
            self.reached = replace(self.reached, leader_epoch=self.losses)
        position, stop = max(self.reached.end, self.start), len(self.log)
        while position < stop:
            end = self.chance.randint(position + 1, stop)
            place = PartitionFolder(TOPIC, 0, self.reached.generation)
            name = SegmentName(place, position, end, cut, f"{len(self.segments):064}")
            self.segments[name] = self.log[position:end]
            fate = self.chance.random()
            if fate < 0.1:
                self.take_over()
                return
            if fate < 0.2:
                return  # The store has the segment, and its answer was lost.
            place_of = ((self.reached.generation, offset) for offset in range(position, end))
            self.copied.update(zip(place_of, self.log[position:end], strict=True))
            position = end
            self.reached = replace(self.reached, end=end)
        start = max(self.reached.start, min(self.start, stop))
        self.reached = replace(self.reached, start=start, end=max(self.reached.end, start))
        if self.chance.random() < 0.15:
            self.take_over()
            return
        topic = BackedTopic("t", TOPIC, 1, {}, (self.reached,))
        file = CutFile(cut, self.number, "c", 0, ".*", "", (topic,))
        self.cuts[CutName(cut, len(self.cuts))] = file
        self.expected[cut] = self.log[self.reached.start : self.reached.end]

    def has_copied_log(self) -> bool:
        """Return whether the source still has what was copied, as its leader epochs tell."""
        return self.reached.end <= len(self.log) and all(
            self.copied[self.reached.generation, offset] == self.log[offset]
            for offset in range(self.reached.start, self.reached.end)
            if (self.reached.generation, offset) in self.copied
        )

    def zombie(self) -> None:
        """Let the run of an earlier epoch write a segment and a cut."""
        if self.epoch.epoch < 2:
            return
        cut = CutId(self.epoch.epoch - 1, self.epoch.closed.get(self.epoch.epoch - 1, 0) + 1)
        place = PartitionFolder(TOPIC, 0, self.reached.generation)
        first = self.chance.randint(0, len(self.log))
        name = SegmentName(place, first, first + 3, cut, f"{len(self.segments):064}")
        self.segments[name] = [-1, -1, -1]
        topic = BackedTopic("t", TOPIC, 1, {}, (BackedPartition(0, 0, 0, first + 3, 0, ()),))
        self.cuts[CutName(cut, len(self.cuts))] = CutFile(cut, 0, "c", 0, ".*", "", (topic,))

    def check(self) -> None:
        catalog = self.catalog()
        for name in catalog.cuts:
            (partition,) = self.cuts[name].topics[0].partitions
            chain = chain_of(partition, catalog.segments_at(name.cut, self.segments))
            assert not chain.holes
            found: dict[int, int] = {}
            for segment in chain.segments:
                for offset, value in enumerate(self.segments[segment], segment.first):
                    found.setdefault(offset, value)
            assert [found[offset] for offset in range(partition.start, partition.end)] == self.expected[
                name.cut
            ]

    def prune(self) -> None:
        catalog = self.catalog()
        for name in cuts_to_prune(catalog.cuts, self.chance.randint(1, 4), None):
            del self.cuts[name]
        needed = NeededSegments(catalog)
        for name in self.catalog().cuts:
            needed.add(self.cuts[name])
        for segment in [segment for segment in self.segments if needed.may_go(segment)]:
            del self.segments[segment]


@pytest.mark.parametrize("seed", range(150))
def test_every_cut_has_exactly_the_records_of_its_source(seed: int) -> None:
    chance = random.Random(seed)
    model = Model(chance)
    model.take_over()
    for _ in range(60):
        step = chance.choices(
            ["write", "cut", "delete", "lose", "zombie", "take_over", "prune"], [30, 40, 8, 3, 4, 5, 5]
        )[0]
        if step == "cut":
            model.cut(model.epoch.epoch)
        else:
            getattr(model, step)()
        model.check()


def test_garbage_of_an_interrupted_run_goes_and_that_of_a_running_one_stays() -> None:
    place = PartitionFolder(TOPIC, 0, 0)
    old, running = (
        SegmentName(place, 0, 5, CutId(1, 4), "0" * 64),
        SegmentName(place, 0, 5, CutId(2, 1), "0" * 64),
    )
    needed = NeededSegments(Catalog(EpochFile(2, "", {1: 3})))
    assert needed.may_go(old)
    assert not needed.may_go(running)


def test_a_cut_is_chosen_by_id_by_time_or_as_the_newest() -> None:
    cuts = [CutName(CutId(1, 1), 100), CutName(CutId(1, 2), 200), CutName(CutId(2, 1), 300)]
    assert chosen_cut(cuts, None) == cuts[2]
    assert chosen_cut(cuts, CutId(1, 2)) == cuts[1]
    assert [chosen_cut(cuts, time_ms) for time_ms in (100, 299, 10**9)] == [cuts[0], cuts[1], cuts[2]]


@pytest.mark.parametrize(
    ("as_of", "wanted"), [(CutId(3, 1), "cut 3-1"), (99, "cut up to 1970-01-01T00:00:00Z")]
)
def test_a_cut_that_is_not_there_is_told_with_the_cuts_that_are(as_of: CutId | int, wanted: str) -> None:
    last_ms = 10**15 - 1  # The largest time of a key, which no calendar has.
    cuts = [CutName(CutId(1, 1), 100), CutName(CutId(2, 1), last_ms)]
    existing = f"its cuts are 1-1 of 1970-01-01T00:00:00Z to 2-1 of {last_ms} ms after 1970"
    with pytest.raises(BackupUnusable, match=f"^the backup has no {wanted}: {existing}$"):
        chosen_cut(cuts, as_of)
    with pytest.raises(BackupUnusable, match="no whole cut yet"):
        chosen_cut([], None)


@given(st.integers(1, 9), st.integers(0, 999))
def test_the_newest_cut_is_never_pruned(keep: int, older_than_ms: int) -> None:
    cuts = [CutName(CutId(1, number), number * 100) for number in range(1, 9)]
    assert cuts_to_prune(cuts, keep, None) == tuple(cuts[:-keep])
    assert cuts_to_prune(cuts, None, 10**9) == tuple(cuts[:-1])
    assert cuts_to_prune(cuts, None, older_than_ms) == tuple(
        cut for cut in cuts[:-1] if cut.time_ms < older_than_ms
    )


def test_a_leader_epoch_ends_where_a_later_one_begins() -> None:
    lineage = extended(extended((), [(3, 0), (3, 5)]), [(3, 7), (6, 9)])
    assert lineage == ((3, 0), (6, 9))
    partition = BackedPartition(0, 0, 0, 20, 6, lineage)
    assert [epoch_end(partition, epoch) for epoch in (0, 3, 4, 6, 9)] == [
        (-1, -1),
        (3, 9),
        (3, 9),
        (6, 20),
        (6, 20),
    ]
