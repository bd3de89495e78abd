"""What somebody may have meant who wrote a name that does not exist: for messages, wherever names are refused. Pure."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The one of `known` that is most like `name`, None if none is like it."""
    from difflib import get_close_matches  # loaded late: commands begin fast, and few names are wrong

    return next(iter(get_close_matches(name, list(known), n=1)), None)
