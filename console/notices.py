"""Notices about the results of changes, each shown on the page to which the change redirects the browser.

The page's URL contains only the number of the notice, so links cannot make up a notice.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict

from .bounds import NOTICES_MAX


class Notices:
    """The newest NOTICES_MAX notices about changes, by a random number."""

    def __init__(self) -> None:
        self._texts: OrderedDict[str, str] = OrderedDict()

    def keep(self, text: str) -> str:
        """Store the text of a notice, and return its random number for the page's URL."""
        number = secrets.token_hex(8)
        self._texts[number] = text
        while len(self._texts) > NOTICES_MAX:
            self._texts.popitem(last=False)
        return number

    def text(self, number: str) -> str:
        """Return the text of the notice with this number; empty if there is none."""
        return self._texts.get(number, "")
