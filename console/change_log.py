"""Log lines in JSON for changes of the cluster and for logins: client address, user, form fields, and the result."""

from __future__ import annotations

import json
import logging
from typing import Final

from starlette.requests import Request

from ..client.foreign_names import is_secret
from .area import Visit
from .settings import without_secrets

logger = logging.getLogger(__name__)

TEXT_MAX: Final = 1000
"""The most characters of a logged field: a form may contain a record of a megabyte."""


class ChangeLog:
    """The log line of one requested change of the cluster, written once its result is known."""

    def __init__(self, request: Request, action: str, visit: Visit) -> None:
        self._event = {
            "event": "change",
            "who": request.client.host if request.client else "",
            "user": visit.connection.get("sasl_plain_username") or "",
            "action": action,
            "what": dict(visit.query)
            | {name: _logged(name, text) for name, text in visit.form.items() if text},
        }

    def tell(self, result: str) -> None:
        """Log the change with its result.

        The level is warning, so that the line appears at the console's default log level.
        """
        logger.warning(json.dumps(self._event | {"result": result}))


def _logged(name: str, text: str) -> str:
    """Return the text of a form field for the log, without secrets."""
    return "[hidden]" if is_secret(name) else without_secrets(text)[:TEXT_MAX]


def tell_login(request: Request, user: str, result: str) -> None:
    """Log the result of a login attempt or a logout, with the client's address."""
    who = request.client.host if request.client else ""
    logger.warning(json.dumps({"event": "login", "who": who, "user": user[:TEXT_MAX], "result": result}))
