"""Suggestions for misspelt names, for error messages that refuse an unknown name. Pure."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the name in `known` that is most similar to `name`; None if none is similar."""
    from difflib import get_close_matches  # loaded late, so that commands start fast: few names are wrong

    return next(iter(get_close_matches(name, list(known), n=1)), None)
