"""What is not there any more: an error, or a warning where failOnDataLoss is false."""

from __future__ import annotations

import logging

logger = logging.getLogger(__name__)


class DataLost(RuntimeError):
    """Records that the query had still to read are gone. The checkpoint is as it was."""


class DataLoss:
    """Tells of losses as the option failOnDataLoss says."""

    def __init__(self, *, fails: bool) -> None:
        self.fails = fails

    def tell(self, what: str) -> None:
        """Raises DataLost, or warns."""
        if self.fails:
            raise DataLost(
                f"{what}. Some records may have been lost, so the query ends here, as failOnDataLoss is true; to go on "
                "with what is left set it to false"
            )
        logger.warning("%s; going on with what is left, as failOnDataLoss is false", what)
