"""The one way in which a quorum node gives up.

A node that cannot keep a promise (a failed fsync, a broken invariant, an unreadable vote) must not say another
word to its peers: it exits at once, without cleaning up, and its peers carry on without it.
"""

from __future__ import annotations

import logging
import os
from typing import NoReturn

logger = logging.getLogger(__name__)

EXIT_STATUS = 70


def exit_process() -> NoReturn:
    """Leave now: no `finally`, no flushing. Tests replace this function."""
    os._exit(EXIT_STATUS)


def fail_stop(reason: str) -> NoReturn:
    """Log `reason`, with the exception being handled if there is one, and exit the process."""
    logger.critical("quorum node stops: %s", reason, exc_info=True)
    logging.shutdown()
    exit_process()
