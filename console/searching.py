"""Which names a visitor looks for. Pure."""

from __future__ import annotations


def has_words(text: str, search: str) -> bool:
    """Whether all words of the search stand in the text, in whatever letters and order."""
    found = text.lower()
    return all(word in found for word in search.lower().split())
