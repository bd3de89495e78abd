"""Settings of Sphinx for the site of the pages: `make docs` builds the site into build/docs.

The source folder is the root of the repository, since pages link to README.md, CONTRIBUTING.md and pages of other
folders. The theme loads nothing from other hosts, and the search works without a server, so readers need no network.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pygments.lexers.special import TextLexer
from sphinx.search.en import SearchEnglish

from ottla.version import __version__

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "Ottla"
version = release = __version__
html_title = f"Ottla {__version__}"
root_doc = "docs/site/index"
extensions = ["myst_parser"]
include_patterns = [
    "*.md",
    "benchmarks/README.md",
    "deploy/README.md",
    "docs/*.md",
    "docs/reference/*.md",
    "docs/site/*.md",
    "examples/*/*.md",
]
myst_heading_anchors = 6
smartquotes = False  # quotes and dashes of pages are often those of programs
html_theme = "furo"
html_extra_path = ["index.html"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False


class WordsAndParts(SearchEnglish):
    """English, with the parts of names as words, too: a search for `isolation` finds `isolation_level`."""

    def split(self, input: str) -> list[str]:
        """Return the words of a text, and the parts of the words that have underscores."""
        words = super().split(input)
        return [*words, *(part for word in words if "_" in word for part in word.split("_") if part)]


def setup(app: Sphinx) -> None:
    """Add the words of the search, and show drawings in Mermaid as text.

    A program that draws them would come from another host.
    """
    app.add_search_language(WordsAndParts)
    app.add_lexer("mermaid", TextLexer)
