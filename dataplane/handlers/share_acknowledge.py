"""ShareAcknowledge (1-2): members of a share group acknowledge the records that they have taken (KIP-932)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...protocol.features import SHARE
from ...protocol.messages.share_fetch import ShareAcknowledgeRequest
from ..security.authorization.needs import handler_asks
from ..server.handler import ClientRequest, handles

if TYPE_CHECKING:
    from .sharing.acknowledgements import ShareAcknowledgements

NEEDS = handler_asks("READ Group, READ Topic")
ACKNOWLEDGEMENTS_MAX = 50_000
"""Maximum number of array elements in a request. Types of single offsets are elements, too."""


class ShareAcknowledgeHandlers:
    """The handler of ShareAcknowledge. The code behind it is loaded with the first request."""

    def __init__(self, acknowledgements: Callable[[], ShareAcknowledgements]) -> None:
        self._acknowledgements = acknowledgements

    @handles(ShareAcknowledgeRequest, 1, 2, feature=SHARE, needs=NEEDS, elements_max=ACKNOWLEDGEMENTS_MAX)
    def share_acknowledge(self, request: ClientRequest, message: ShareAcknowledgeRequest) -> None:
        """Apply acknowledgements, and answer once they are durable. Epoch -1 also closes the share session."""
        self._acknowledgements().acknowledge(request, message)
