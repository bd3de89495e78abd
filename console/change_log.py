"""One line of JSON in the log for each change and each login: who, from where, what, and what became of it."""

from __future__ import annotations

import json
import logging
from typing import Final

from starlette.requests import Request

from .area import Visit
from .settings import without_secrets

logger = logging.getLogger(__name__)

TEXT_MAX: Final = 1000
"""Characters of a field that are kept: somebody may send a record of a megabyte."""


class ChangeLog:
    """Tells of one change that somebody asked for."""

    def __init__(self, request: Request, action: str, visit: Visit) -> None:
        self._event = {
            "event": "change",
            "who": request.client.host if request.client else "",
            "user": visit.connection.get("sasl_plain_username") or "",
            "action": action,
            "what": dict(visit.query)
            | {name: without_secrets(text)[:TEXT_MAX] for name, text in visit.form.items()},
        }

    def tell(self, result: str) -> None:
        """What became of it. It is a warning, so that it is seen at the level at which the console logs."""
        logger.warning(json.dumps(self._event | {"result": result}))


def tell_login(request: Request, user: str, result: str) -> None:
    """Somebody signed in, tried to, or signed out."""
    who = request.client.host if request.client else ""
    logger.warning(json.dumps({"event": "login", "who": who, "user": user[:TEXT_MAX], "result": result}))
