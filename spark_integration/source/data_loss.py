"""The reaction to lost records: an error, or a warning if failOnDataLoss is false."""

from __future__ import annotations

import logging

logger = logging.getLogger(__name__)


class DataLost(RuntimeError):
    """An error: records that the query had still to read are gone. The checkpoint is unchanged."""


class DataLoss:
    """A reporter of losses that follows the option failOnDataLoss."""

    def __init__(self, *, fails: bool) -> None:
        self.fails = fails

    def tell(self, what: str) -> None:
        """Report a loss of records, which `what` describes: raise DataLost, or log a warning."""
        if self.fails:
            raise DataLost(
                f"{what}. Some records may have been lost, so the query ends here, as failOnDataLoss is true; to go on "
                "with what is left set it to false"
            )
        logger.warning("%s; going on with what is left, as failOnDataLoss is false", what)
