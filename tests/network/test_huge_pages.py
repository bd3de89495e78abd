"""A program's memory is moved into huge pages without a change of its contents."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ENABLED = Path("/sys/kernel/mm/transparent_hugepage/enabled")
PROGRAM = """
import hashlib, os, re
from pathlib import Path
from ottla.network.huge_pages import collapse_into_huge_pages

def huge_kb():
    return int(re.search(r"AnonHugePages: *(\\d+) kB", Path("/proc/self/smaps_rollup").read_text())[1])

kept = [os.urandom(64_000) for _ in range(200)]
before, digest = huge_kb(), hashlib.sha256(b"".join(kept)).digest()
collapse_into_huge_pages()
assert hashlib.sha256(b"".join(kept)).digest() == digest
print(before, huge_kb())
"""


def test_memory_is_moved_into_huge_pages() -> None:
    if not ENABLED.exists() or "[never]" in ENABLED.read_text():
        pytest.skip("this kernel has no transparent huge pages")
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    before_kb, after_kb = map(int, done.stdout.split())
    if after_kb == 0:
        pytest.skip("this kernel does not collapse pages on demand (Linux 6.1 does)")
    assert after_kb >= before_kb + 8_192


def test_a_kernel_without_huge_pages_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from ottla.network import huge_pages

    monkeypatch.setattr(huge_pages, "_MAPS", Path("/nonexistent/maps"))
    huge_pages.collapse_into_huge_pages()
