"""Markdown for the pages of the reference: tables, escaped text, and docstrings."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator

_WIDTH = 120


def table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table; bars in cells are escaped."""
    columns = tuple(columns)
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    lines += [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def code(text: str) -> str:
    """Return a code span; an empty text has none."""
    return f"`{text}`" if text else ""


def paragraph(text: str) -> str:
    """Return a paragraph with lines of usual width."""
    return textwrap.fill(text, _WIDTH, break_on_hyphens=False, break_long_words=False) + "\n"


def fenced(text: str, language: str = "") -> str:
    """Return a block of code."""
    return f"```{language}\n{text.strip(chr(10)).rstrip()}\n```\n"


def plain(text: str) -> str:
    """Return a text without signs that Markdown would take for emphasis or HTML. Code spans stay unchanged."""
    parts = re.split(r"(`[^`]*`)", text)
    parts[::2] = [re.sub(r"([*<>])", r"\\\1", part) for part in parts[::2]]
    return "".join(parts)


def docstring(text: str) -> str:
    """Return a docstring as Markdown: its indented lines are blocks of Python, and its paragraphs are wrapped."""
    return "\n".join(_blocks(text)).strip() + "\n"


def _blocks(text: str) -> Iterator[str]:
    for block in re.split(r"\n\n(?=    )|(?<=\n)\n(?=\S)", f"\n\n{text}\n\n"):
        if block.startswith("    "):
            yield fenced(textwrap.dedent(block), "python")
        else:
            for part in re.split(r"\n\n+|\n(?=- )", block.strip()):
                hanging = "  " if part.startswith("- ") else ""
                filled = textwrap.fill(
                    plain(" ".join(part.split())),
                    _WIDTH,
                    subsequent_indent=hanging,
                    break_on_hyphens=False,
                    break_long_words=False,
                )
                yield f"{filled}\n" if not hanging else filled


def first_sentence(text: str) -> str:
    """Return the first sentence of a docstring, on one line."""
    joined = " ".join(text.split("\n\n")[0].split())
    return plain(re.split(r"(?<=\.) (?=[A-Z])", joined)[0].rstrip(":"))
