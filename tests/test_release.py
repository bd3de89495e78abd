"""The version stands in three places, and they agree: the code, the package, and the changelog."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from ottla.version import __version__

ROOT = Path(__file__).resolve().parents[1]
INSTALLED_FROM_PYPI = re.compile(r"pip install ['\"]?(ottla)\b")
RELEASE = re.compile(r"(\d+\.\d+\.\d+) \((\d{4}-\d\d-\d\d)\)")


def test_code_package_and_changelog_have_one_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "Unreleased"
    releases = [RELEASE.fullmatch(heading) for heading in headings[1:]]
    assert all(releases), headings
    newest = releases[0]
    assert newest is not None
    assert newest[1] == project["version"] == __version__


def test_nothing_says_that_a_release_is_on_pypi() -> None:
    """Until there is one, `ottla.extras` says where a package with extras comes from."""
    tracked = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False
    ).stdout.decode()
    if not tracked:
        pytest.skip("this is no checkout of git")
    wrong = []
    for name in filter(None, tracked.split("\0")):
        path = ROOT / name
        if path.suffix in (".py", ".md", ".html", ".yaml", ".toml") and path.is_file():
            wrong += [name for found in INSTALLED_FROM_PYPI.findall(path.read_text()) if found]
    assert not wrong


def test_releases_are_listed_from_the_newest_to_the_oldest() -> None:
    found = RELEASE.findall((ROOT / "CHANGELOG.md").read_text())
    assert [day for _, day in found] == sorted((day for _, day in found), reverse=True)
