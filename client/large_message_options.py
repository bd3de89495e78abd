"""The option `large_messages`, which producers and consumers have in common. Pure."""

from __future__ import annotations

from typing import Literal

LargeMessages = bool | Literal["reference"]
"""True: large values are split into records, and joined. `"reference"`: they are kept as objects of a store, and
fetched. False: neither."""


def check_large_messages(chosen: object, store: str | None) -> None:
    """Raise TypeError for another value of `large_messages`, and ValueError for references without a store."""
    if not isinstance(chosen, bool) and chosen != "reference":
        raise TypeError(f"large_messages is True, False or 'reference', not {chosen!r}")
    if chosen == "reference" and store is None:
        raise ValueError("large_messages='reference' needs a large_message_store")
    if chosen is False and store is not None:
        raise ValueError("large_messages=False and large_message_store exclude each other")
