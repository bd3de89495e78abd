"""What a change did, told once on the page that it leads to. The address has only a number: strangers cannot write
it."""

from __future__ import annotations

import secrets
from collections import OrderedDict

from .bounds import NOTICES_MAX


class Notices:
    """The newest notices by number."""

    def __init__(self) -> None:
        self._texts: OrderedDict[str, str] = OrderedDict()

    def keep(self, text: str) -> str:
        """The number under which the text is found."""
        number = secrets.token_hex(8)
        self._texts[number] = text
        while len(self._texts) > NOTICES_MAX:
            self._texts.popitem(last=False)
        return number

    def text(self, number: str) -> str:
        """Empty for one that is not known."""
        return self._texts.get(number, "")
