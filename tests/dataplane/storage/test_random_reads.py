"""The time of reads at random places decides how many threads read headers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from ottla.dataplane.storage import random_reads
from ottla.dataplane.storage.random_reads import are_quick


class Disk:
    """A disk whose page cache is empty, and which takes a time for each read."""

    def __init__(self, read_s: float) -> None:
        self.now, self.reads = 0.0, 0
        self.read_s = read_s

    def monotonic(self) -> float:
        return self.now

    def preadv(self, _fd: int, _buffers: Sequence[bytearray], _position: int, flags: int = 0) -> int:
        if flags & os.RWF_NOWAIT:
            raise BlockingIOError
        self.now += self.read_s
        self.reads += 1
        return 1


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    found = [tmp_path / f"t-{number}" for number in range(200)]
    for folder in found:
        folder.mkdir()
        (folder / "00000000000000000000.log").write_bytes(b"x" * 5000)
    return found


@pytest.mark.parametrize(("read_s", "is_quick"), [(0.0001, True), (0.001, True), (0.006, False)])
def test_a_disk_with_a_head_is_told_by_its_time(
    folders: list[Path], monkeypatch: pytest.MonkeyPatch, read_s: float, is_quick: bool
) -> None:
    disk = Disk(read_s)
    monkeypatch.setattr(random_reads.os, "preadv", disk.preadv)
    monkeypatch.setattr(random_reads.time, "monotonic", disk.monotonic)
    assert are_quick(folders) == is_quick
    assert disk.reads == 7


def test_cached_files_need_no_disk(folders: list[Path]) -> None:
    assert are_quick(folders)
    assert are_quick([])


def test_few_places_of_a_slow_disk_do_not_matter(
    folders: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(0.006)
    monkeypatch.setattr(random_reads.os, "preadv", disk.preadv)
    assert are_quick(folders[:6])


def test_errors_count_as_slow(folders: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_args: object) -> int:
        raise OSError

    monkeypatch.setattr(random_reads.os, "preadv", refused)
    assert not are_quick(folders)


def test_folders_without_segments_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert are_quick([tmp_path / "empty", tmp_path / "missing"])
