"""The pages read as plain English: no sentence is longer than a reader can hold."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md"), *(ROOT / "examples").rglob("*.md")]
WORDS_MAX = 30
_ENDS_A_SENTENCE = re.compile(r"(?<=[.!?])[)\"*_]*\s+")
_STARTS_ANOTHER = re.compile(r"^(?:[-*+]|\d+[.)])\s+")


def blocks(text: str) -> Iterator[str]:
    """Yield the paragraphs, list items, headings and table cells of a page, each on one line and
    without code blocks.
    """
    text = re.sub(r"^```.*?^```", "\n", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    paragraph: list[str] = []
    in_list = False
    for line in [*text.splitlines(), ""]:
        stripped = line.strip()
        in_list = in_list and (not stripped or line.startswith("  "))
        code = line.startswith("    ") and not paragraph and not in_list
        starts = bool(_STARTS_ANOTHER.match(stripped)) or stripped.startswith(("#", "|", ">"))
        if paragraph and (starts or not stripped or code):
            yield " ".join(paragraph)
            paragraph = []
        in_list = in_list or bool(_STARTS_ANOTHER.match(stripped))
        if stripped.startswith("|"):
            yield from (cell.strip() for cell in re.split(r"(?<!\\)\|", stripped.strip("|")))
        elif stripped and not code:
            paragraph.append(_STARTS_ANOTHER.sub("", stripped).lstrip("#> "))


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text; a sentence ends with a full stop or with its block.

    A code span or a link counts as its visible words.
    """
    for block in blocks(text):
        plain = re.sub(r"`[^`]+`", "CODE", block)
        plain = re.sub(r"!?\[([^]]*)\]\([^)]*\)", r"\1", plain)
        yield from _ENDS_A_SENTENCE.split(plain)


def words(sentence: str) -> int:
    """Return the number of words; lone symbols, as in a formula, do not count."""
    return sum(1 for word in sentence.split() if re.search(r"\w", word))


def test_no_sentence_is_too_long() -> None:
    long = [
        f"{page.relative_to(ROOT)}: {words(sentence)} words: {sentence}"
        for page in PAGES
        for sentence in sentences(page.read_text())
        if words(sentence) > WORDS_MAX
    ]
    assert not long, "\n".join(long)


def test_what_counts_as_a_sentence() -> None:
    page = (
        "# A title\n\nOne sentence. And `ottla up --brokers 3`, another.\n\n"
        "- an item that\n  goes on\n- [a link](else.md#where)\n\nExample:\n\n    indented code is no prose at all\n\n"
        "| a cell | 2.5 ms |\n|---|---|\n\n```\nnor is this\n```\n"
    )
    assert [sentence for sentence in sentences(page) if words(sentence)] == [
        "A title",
        "One sentence.",
        "And CODE, another.",
        "an item that goes on",
        "a link",
        "Example:",
        "a cell",
        "2.5 ms",
    ]
    assert words("start <= LSO <= HW") == 3
