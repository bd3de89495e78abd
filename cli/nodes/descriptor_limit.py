"""How many files and connections a node may have open: as many as it is allowed at most, whatever its shell has set."""

from __future__ import annotations

import logging
import resource

logger = logging.getLogger(__name__)


def raise_descriptor_limit() -> None:
    """Raise the soft limit of descriptors to the hard one. A replica takes one of them, and so does a connection; many
    systems begin with 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:
        logger.warning("the limit of open files stays at %d: %s", soft, error)
