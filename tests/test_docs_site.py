"""The site of the pages: its navigation names every page once, all its links lead somewhere, and its search finds."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chromium import NEEDS_CHROMIUM, launched

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "docs" / "site"
TREE = re.compile(r"^```\{toctree\}\n(.*?)^```", re.MULTILINE | re.DOTALL)
OF_OTHER_FOLDERS = (
    "benchmarks/README.md",
    "deploy/README.md",
    "examples/outbox/README.md",
    "examples/replicated_database/README.md",
)


def named_pages() -> list[Path]:
    """Return the pages that the navigation names, in its order."""
    entries = [
        line
        for tree in TREE.findall((SITE / "index.md").read_text())
        for line in tree.splitlines()
        if line and not line.startswith(":")
    ]
    targets = [re.sub(r".*<(.*)>", r"\1", entry) for entry in entries]
    return [(SITE / f"{target}.md").resolve() for target in targets]


def test_the_navigation_names_every_page_once() -> None:
    expected = [page for page in (ROOT / "docs").rglob("*.md") if SITE not in page.parents]
    expected += [*ROOT.glob("*.md"), *(ROOT / name for name in OF_OTHER_FOLDERS)]
    assert sorted(named_pages()) == sorted(expected)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a new site; the build fails at a link that leads nowhere."""
    pytest.importorskip("sphinx", reason="Sphinx is missing: pip install '.[docs]'")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", str(SITE)]
    command += ["-d", str(folder / "cache"), str(ROOT), str(folder / "pages")]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return folder / "pages"


@pytest.mark.xdist_group("a browser")  # one process builds the site for both tests
def test_the_site_has_a_page_for_each(site: Path) -> None:
    built = {path.relative_to(site).with_suffix(".md") for path in site.rglob("*.html")}
    assert {page.relative_to(ROOT) for page in named_pages()} <= built


class TestSearch:
    pytestmark = NEEDS_CHROMIUM

    def test_the_search_finds_options_without_a_network(self, site: Path) -> None:
        with launched() as browser:
            page = browser.new_page()
            asked: list[str] = []
            page.on("request", lambda request: asked.append(request.url))
            page.goto(f"{(site / 'index.html').as_uri()}")
            page.get_by_role("link", name="Configuration").first.wait_for()
            page.get_by_placeholder("Search").fill("isolation")
            page.get_by_placeholder("Search").press("Enter")
            results = page.locator("#search-results li a")
            for title in ("ottla.Consumer", 'Options of format("ottla")', "Spark"):
                results.get_by_text(title, exact=True).first.wait_for()
            page.get_by_role("link", name="ottla.Consumer", exact=True).last.click()
            page.get_by_text("A reader of committed records waits").first.wait_for()
            assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
