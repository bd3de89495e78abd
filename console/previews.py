"""Previews of changes that a session has shown. Each keeps its planned change until a form asks to carry it out.

The page contains only the number of its preview, and the change itself stays here. So a form can neither alter a change
nor ask for one that no preview has shown.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from .area import Change, Outdated, Visit
from .bounds import PREVIEW_S, PREVIEWS_MAX


@dataclass(frozen=True, slots=True)
class _Kept:
    change: Change
    form: bytes
    shown_s: float


class Previews:
    """The newest previews of a session, each with its planned change, by a random number."""

    def __init__(self, *, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    def keep(self, change: Change, visit: Visit) -> str:
        """Store a planned change, and return the random number of its preview.

        The number is valid only with the same URL and form fields.
        """
        number = secrets.token_urlsafe(16)
        self._kept[number] = _Kept(change, _digest(visit), self._now())
        while len(self._kept) > PREVIEWS_MAX:
            self._kept.popitem(last=False)
        return number

    def take(self, number: str, visit: Visit) -> Change:
        """Remove a preview, and return its planned change.

        Raises Outdated if the preview is unknown, too old, or of another form.

        Without a number, which scripts may leave out, the newest preview of the same form is taken.
        """
        kept = self._kept.pop(number or self._newest(visit), None)
        if kept is None or self._now() - kept.shown_s > PREVIEW_S:
            raise Outdated("this preview was carried out before, or is too old")
        if kept.form != _digest(visit):
            raise Outdated("this preview is that of another form")
        return kept.change

    def _newest(self, visit: Visit) -> str:
        form = _digest(visit)
        return next((number for number, kept in reversed(self._kept.items()) if kept.form == form), "")


def _digest(visit: Visit) -> bytes:
    """Return the SHA-256 hash of a request's URL and form fields, so that a megabyte of fields need not be kept."""
    shown = json.dumps([visit.path, dict(visit.query), dict(visit.form)], sort_keys=True)
    return hashlib.sha256(shown.encode()).digest()
