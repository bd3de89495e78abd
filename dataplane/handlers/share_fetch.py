"""ShareFetch (1-2): members of a share group take records, and acknowledge records that they took before (KIP-932)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...protocol.features import SHARE
from ...protocol.messages.share_fetch import ShareFetchRequest
from ..server.handler import ClientRequest, handles
from .share_acknowledge import ACKNOWLEDGEMENTS_MAX, NEEDS

if TYPE_CHECKING:
    from .sharing.fetches import ShareFetches


class ShareFetchHandlers:
    """The handler of ShareFetch. The code behind it is loaded with the first request."""

    def __init__(self, fetches: Callable[[], ShareFetches]) -> None:
        self._fetches = fetches

    @handles(
        ShareFetchRequest,
        1,
        2,
        feature=SHARE,
        needs=NEEDS,
        elements_max=ACKNOWLEDGEMENTS_MAX,
        waits_for_others=True,
    )
    def share_fetch(self, request: ClientRequest, message: ShareFetchRequest) -> None:
        """Apply the acknowledgements of a fetch, then acquire records or let the fetch wait."""
        self._fetches().fetch(request, message)
