"""TxnShareAcknowledge (0): members of a share group acknowledge records in a producer's transaction. The API is Ottla's
own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...protocol.cluster.acls import AclOperation
from ...protocol.features import SHARE
from ...protocol.messages.share_transactions import TxnShareAcknowledgeRequest
from ..security.authorization.needs import handler_asks, transactional_id
from ..server.handler import ClientRequest, handles
from .share_acknowledge import ACKNOWLEDGEMENTS_MAX

if TYPE_CHECKING:
    from .sharing.acknowledgements import ShareAcknowledgements


class TxnShareAcknowledgeHandlers:
    """The handler of TxnShareAcknowledge. The code behind it is loaded with the first request."""

    def __init__(self, acknowledgements: Callable[[], ShareAcknowledgements]) -> None:
        self._acknowledgements = acknowledgements

    @handles(
        TxnShareAcknowledgeRequest,
        0,
        0,
        feature=SHARE,
        needs=transactional_id(AclOperation.WRITE) & handler_asks("READ Group, READ Topic"),
        elements_max=ACKNOWLEDGEMENTS_MAX,
    )
    def txn_share_acknowledge(self, request: ClientRequest, message: TxnShareAcknowledgeRequest) -> None:
        """Acknowledge records in a transaction. Answer once the acknowledgements are part of it."""
        self._acknowledgements().acknowledge_in_transaction(request, message)
