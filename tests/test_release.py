"""The version stands in three places, and they agree: the code, the package, and the changelog."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from ottla.version import __version__

ROOT = Path(__file__).resolve().parents[1]
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


def test_releases_are_listed_from_the_newest_to_the_oldest() -> None:
    found = RELEASE.findall((ROOT / "CHANGELOG.md").read_text())
    assert [day for _, day in found] == sorted((day for _, day in found), reverse=True)
