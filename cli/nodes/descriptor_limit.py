"""The limit of a node's open files and connections."""

from __future__ import annotations

import logging
import resource

logger = logging.getLogger(__name__)


def raise_descriptor_limit() -> None:
    """Raise this process's soft limit of file descriptors to the hard limit.

    Each replica and each connection takes a descriptor; many systems begin with a soft limit of 1,024.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:
        logger.warning("the limit of open files stays at %d: %s", soft, error)
