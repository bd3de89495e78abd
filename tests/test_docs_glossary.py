"""The page docs/GLOSSARY.md lists exactly the terms that other pages define."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GLOSSARY = ROOT / "docs" / "GLOSSARY.md"
PAGES = [page for page in (*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")) if page != GLOSSARY]
EMPHASIS = {
    "and",
    "only",
    "that",
    "this",
    "new",
    "first",
    "all",
    "application",
    "delayed",
    "your",
    "has",
    "wrong",
}
"""Words in italics for emphasis, which define no term."""
LABELS = {"Test:", "Tests:"}


def entries() -> list[str]:
    """Return the terms that the tables explain; several names of one thing are separate entries."""
    cells = re.findall(r"^\| ([^|]+?) \| ", GLOSSARY.read_text(), re.MULTILINE)
    return [name for cell in cells if cell != "word" for name in names(cell)]


def names(cell: str) -> list[str]:
    """Return the terms in a cell, without abbreviations; `leader and follower` gives two terms."""
    return re.split(r", | and ", re.sub(r" \([A-Z]+\)", "", cell))


def plain(page: Path) -> str:
    return re.sub(r"\s+", " ", page.read_text())


def test_every_entry_is_used_by_a_page() -> None:
    text = " ".join(map(plain, PAGES)).lower()
    unused = [entry for entry in entries() if not re.search(rf"\b{re.escape(entry.lower())}", text)]
    assert not unused


def test_no_word_is_explained_twice() -> None:
    words = entries()
    assert len(words) == len(set(words)) > 50


def test_every_word_that_a_page_sets_in_italics_is_explained() -> None:
    explained = {entry.lower() for entry in entries()}
    missing = {
        (page.name, word)
        for page in PAGES
        for word in re.findall(r"(?<![*\w`])\*([A-Za-z][^*`\n]*)\*(?![*\w`])", without_code(page))
        if word not in LABELS | EMPHASIS | {"CODE"} and word.lower().removesuffix("s") not in explained | {""}
        if word.lower() not in explained
    }
    assert not missing


def without_code(page: Path) -> str:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "CODE", text)
