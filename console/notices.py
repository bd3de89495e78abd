"""Notices about the results of changes, each shown on the page that the change leads to.

The address contains only a number, so links cannot make up a notice.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict

from .bounds import NOTICES_MAX


class Notices:
    """The newest notices by number."""

    def __init__(self) -> None:
        self._texts: OrderedDict[str, str] = OrderedDict()

    def keep(self, text: str) -> str:
        """Keep a text and return its number."""
        number = secrets.token_hex(8)
        self._texts[number] = text
        while len(self._texts) > NOTICES_MAX:
            self._texts.popitem(last=False)
        return number

    def text(self, number: str) -> str:
        """Return the text of a number; empty if it is unknown."""
        return self._texts.get(number, "")
