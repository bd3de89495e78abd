"""Disks that tests break: a small file system under a node's data folder, made before the cluster starts.

    with tmpfs(tmp_path / "broker-1", size_mb=16) as small, running_cluster(tmp_path) as cluster:
        small.fill()      # nothing more fits
        small.make_room()

A disk is a tmpfs, or, where it shall turn read-only under load as real ones do, an ext4 on a loop device that stops
writing at its first error.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_MEGABYTE = 1 << 20
_FILLER = "filler"


@cache
def unavailable() -> str:
    """Return the reason why file systems cannot be mounted here; empty if they can."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        return "mounting file systems needs root"
    done = subprocess.run(
        ["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"],
        capture_output=True,
        text=True,
        check=False,
    )
    return f"mounting file systems needs CAP_SYS_ADMIN: {done.stderr.strip()}" if done.returncode else ""


@cache
def no_loop_devices() -> str:
    """Return the reason why there can be no ext4 on a loop device; empty if there can."""
    if why := unavailable():
        return why
    missing = [tool for tool in ("mkfs.ext4", "losetup") if shutil.which(tool) is None]
    if missing:
        return f"a read-only disk needs {' and '.join(missing)}"
    done = subprocess.run(["losetup", "--find"], capture_output=True, text=True, check=False)
    if done.returncode or "ext4" not in Path("/proc/filesystems").read_text():
        return "a read-only disk needs a free loop device and ext4"
    return ""


@dataclass
class Disk:
    """A mounted file system; it is the data folder of a node."""

    path: Path
    device: str = ""
    """The loop device; empty for a tmpfs."""
    image: Path | None = None

    def fill(self) -> None:
        """Write until no file can grow by a page; the last page of a file may still have room."""
        with (self.path / _FILLER).open("ab", buffering=0) as filler:
            for size in (_MEGABYTE, 4096, 1):
                with suppress(OSError):
                    while filler.write(b"\0" * size) == size:
                        pass

    def make_room(self) -> None:
        """Delete the files that `fill` wrote."""
        (self.path / _FILLER).unlink(missing_ok=True)

    def break_down(self) -> None:
        """Make the file system meet an error, after which it writes no more (errors=remount-ro)."""
        trigger = Path("/sys/fs/ext4") / Path(self.device).name / "trigger_fs_error"
        with suppress(OSError):
            trigger.write_text("broken by a test")
        with suppress(OSError):
            (self.path / _FILLER).write_bytes(b"still writable")
            raise AssertionError(f"{self.path} can still be written")

    def repair(self) -> None:
        """Check the file system and mount it as before, as an operator does once the node has released it."""
        _run("umount", str(self.path))
        subprocess.run(["e2fsck", "-fp", self.device], check=False, capture_output=True)
        _run("mount", "-o", "errors=remount-ro", self.device, str(self.path))


@contextmanager
def tmpfs(path: Path, size_mb: int) -> Iterator[Disk]:
    """Mount a file system of this size in memory at `path` until the block ends."""
    path.mkdir(parents=True)
    _run("mount", "-t", "tmpfs", "-o", f"size={size_mb}m", "ottla-test", str(path))
    try:
        yield Disk(path)
    finally:
        _run("umount", "--lazy", str(path))


@contextmanager
def ext4(path: Path, image: Path, size_mb: int) -> Iterator[Disk]:
    """Mount an ext4 in the file `image` at `path` until the block ends."""
    path.mkdir(parents=True)
    with image.open("wb") as file:
        file.truncate(size_mb * _MEGABYTE)
    _run("mkfs.ext4", "-q", "-F", "-m", "0", str(image))
    device = _run("losetup", "--find", "--show", str(image)).strip()
    try:
        _run("mount", "-o", "errors=remount-ro", device, str(path))
        try:
            yield Disk(path, device, image)
        finally:
            _run("umount", "--lazy", str(path))
    finally:
        _run("losetup", "--detach", device)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


def flip(path: Path, position: int, bits: int = 1) -> None:
    """Flip bits of one byte; a negative position counts from the end."""
    with path.open("r+b") as file:
        file.seek(position, os.SEEK_END if position < 0 else os.SEEK_SET)
        at = file.tell()
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ bits]))
