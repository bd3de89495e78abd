"""The distribution's Chromium, for tests that look at pages as people see them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CHROMIUM = next(
    filter(
        None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"))
    ),
    None,
)
NEEDS_CHROMIUM = [
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: apt-get install chromium"),
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("a browser"),
]


@contextmanager
def launched() -> Iterator[Browser]:
    """Run a browser; the test is skipped where Playwright is missing."""
    api = pytest.importorskip("playwright.sync_api", reason="Playwright is missing: pip install playwright")
    with api.sync_playwright() as playwright:
        # Root has no sandbox, and all displayed pages come from this machine.
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield browser
        browser.close()
