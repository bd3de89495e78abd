"""The identity of the page cache behind a folder, as `/proc` and `/sys` tell it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ottla.dataplane.log import page_cache
from ottla.dataplane.log.page_cache import UnknownPageCache, page_cache_of

pytestmark = pytest.mark.skipif(
    page_cache._wait_for_writes() is None, reason="the system has no sync_file_range"
)


class System:
    """A `/proc` and a `/sys` in a folder of files, in which a disk is mounted."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.data, self.boot_id = root / "data", root / "boot_id"
        self.devices, self.mounted = root / "block", root / "fs"
        for folder in (self.data, self.devices, self.mounted / "ext4", self.mounted / "xfs"):
            folder.mkdir(parents=True)
        self.boot_id.write_text("7291d67c\n")
        device = os.stat(self.data).st_dev
        self.device = self.devices / f"{os.major(device)}:{os.minor(device)}"
        self.device.symlink_to("../../devices/virtual/block/dm-3")
        monkeypatch.setattr(page_cache, "_BOOT_ID", self.boot_id)
        monkeypatch.setattr(page_cache, "_DEVICES", self.devices)
        monkeypatch.setattr(page_cache, "_MOUNTED", self.mounted)

    def mount(self, kind: str) -> None:
        (self.mounted / kind / "dm-3").mkdir()

    def count_errors(self, text: str) -> None:
        (self.mounted / "ext4" / "dm-3" / "errors_count").write_text(text)

    def unmount(self, kind: str) -> None:
        # The name stays until the test ends, so that the next mount gets another inode.
        (self.mounted / kind / "dm-3").rename(self.mounted / f"unmounted-{len(os.listdir(self.mounted))}")


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> System:
    return System(tmp_path, monkeypatch)


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_it_stays_the_same_until_the_machine_restarts_or_the_disk_is_mounted_again(
    system: System, kind: str
) -> None:
    system.mount(kind)
    first = page_cache_of(system.data)
    assert page_cache_of(system.data) == first
    assert first.boot == "7291d67c"
    system.boot_id.write_text("0c3f\n")
    assert page_cache_of(system.data) != first
    system.boot_id.write_text("7291d67c\n")
    assert page_cache_of(system.data) == first
    system.unmount(kind)
    system.mount(kind)
    assert page_cache_of(system.data) != first


def test_it_differs_once_the_file_system_has_met_an_error(system: System) -> None:
    system.mount("ext4")
    system.count_errors("0\n")
    first = page_cache_of(system.data)
    system.count_errors("1\n")
    assert page_cache_of(system.data) != first
    system.count_errors("?")
    with pytest.raises(UnknownPageCache):
        page_cache_of(system.data)


def test_a_copy_of_the_folder_has_another_one(system: System, tmp_path: Path) -> None:
    system.mount("ext4")
    copy = tmp_path / "copy"
    copy.mkdir()
    assert page_cache_of(copy) != page_cache_of(system.data)


def test_other_file_systems_are_not_trusted(system: System) -> None:
    with pytest.raises(UnknownPageCache, match=r"the file system of .*/data is not known to be ext4 or XFS"):
        page_cache_of(system.data)
    system.mount("ext4")
    page_cache_of(system.data)
    system.device.unlink()
    with pytest.raises(UnknownPageCache, match="is not known to be ext4 or XFS"):
        page_cache_of(system.data)


def test_a_system_without_proc_is_not_trusted(system: System) -> None:
    system.mount("ext4")
    system.boot_id.write_text("")
    with pytest.raises(UnknownPageCache, match="boot_id is empty"):
        page_cache_of(system.data)
    system.boot_id.unlink()
    with pytest.raises(UnknownPageCache, match="the kernel's boot id cannot be read"):
        page_cache_of(system.data)


def test_other_systems_are_not_trusted(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    system.mount("ext4")
    monkeypatch.setattr(page_cache.sys, "platform", "darwin")
    with pytest.raises(UnknownPageCache, match="the system does not tell"):
        page_cache_of(system.data)
