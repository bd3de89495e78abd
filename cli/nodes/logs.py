"""Log lines of a node on standard error: one event per line, as `key=value` or JSON.

A call may add fields to its line: `logger.info("...", extra={"fields": {"version": "1.0"}})`.
"""

from __future__ import annotations

import json
import logging
import time

from ..terminal.text import json_escaped, visible, visible_lines

LEVELS = ("debug", "info", "warning", "error")


class OfNode(logging.Filter):
    """A logging filter that adds the node's name to each log record."""

    def __init__(self, node: str) -> None:
        super().__init__()
        self._node = node

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the node's name to the log record, and let the record pass."""
        record.node = self._node
        return True


class KeyValueFormatter(logging.Formatter):
    """A formatter of lines such as `2026-01-31T12:00:00.123Z level=info logger=dataplane.broker msg="..."`.

    Text is quoted where necessary.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the log record as one line; a traceback follows on further lines."""
        line = " ".join(f"{key}={_quoted(value)}" for key, value in _fields(record))
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = f"{stamp}.{int(record.msecs):03d}Z {line}"
        return f"{line}\n{visible_lines(self.formatException(record.exc_info))}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """A formatter that writes a log record's level, logger, message and other fields as one JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the log record as one line of JSON; the field `exception` holds a traceback."""
        fields = {"time_ms": int(record.created * 1000)} | dict(_fields(record))
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str)


def configure(level: str, *, as_json: bool = False, node: str = "") -> None:
    """Send log records at or above `level` (a name in LEVELS) to standard error.

    Each line names the `node`, if given.
    """
    handler = logging.StreamHandler()
    if node:
        handler.addFilter(OfNode(node))
    handler.setFormatter(JsonFormatter() if as_json else KeyValueFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def _fields(record: logging.LogRecord) -> list[tuple[str, object]]:
    logger = record.name.removeprefix("ottla.")
    node = getattr(record, "node", "")
    return [
        ("level", record.levelname.lower()),
        *([("node", node)] if node else []),
        ("logger", logger),
        ("msg", record.getMessage()),
        *getattr(record, "fields", {}).items(),
    ]


def _quoted(value: object) -> str:
    text = str(value)
    if not text or visible(text) != text or any(c in text for c in ' "='):
        return json_escaped(json.dumps(text, ensure_ascii=False))
    return text
