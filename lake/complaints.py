"""The failures of tables in the log: each once, as long as it stays the same."""

from __future__ import annotations

import logging


class Complaints:
    """The failures that were logged last, by subject: a table, or a topic."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._last: dict[str, str] = {}

    def add(self, subject: str, text: str) -> None:
        """Log a failure, unless it is the last one of its subject."""
        if self._last.get(subject) != text:
            self._last[subject] = text
            self._logger.error("%s", text)

    def end(self, subject: str) -> bool:
        """Forget the failure of a subject, and return whether there was one."""
        return self._last.pop(subject, None) is not None
