"""The emergency exit of a quorum node.

A node that cannot keep its guarantees (a failed fsync, a broken invariant, an unreadable vote) must not send anything
else to its peers. It exits at once without cleaning up, and its peers continue without it.
"""

from __future__ import annotations

import logging
import os
from typing import NoReturn

logger = logging.getLogger(__name__)

EXIT_STATUS = 70


def exit_process() -> NoReturn:
    """Exit at once, without `finally` blocks and without flushing. Tests replace this function."""
    os._exit(EXIT_STATUS)


def fail_stop(reason: str) -> NoReturn:
    """Log `reason` with the current exception, if any, and exit the process."""
    logger.critical("quorum node stops: %s", reason, exc_info=True)
    logging.shutdown()
    exit_process()
