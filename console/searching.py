"""The search for names in lists of topics, groups and other things. Pure."""

from __future__ import annotations


def has_words(text: str, search: str) -> bool:
    """Return whether the text contains all words of the search, in any case and order."""
    found = text.lower()
    return all(word in found for word in search.lower().split())
