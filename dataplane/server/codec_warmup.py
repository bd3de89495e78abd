"""The generation of the codecs of served APIs before they are needed.

A codec is generated at its first use, which takes a millisecond or more. Without preparation, a broker that has just
become the leader would spend this time at the first request of each kind, while every client of the partition waits.
"""

from __future__ import annotations

import asyncio

from ...protocol.messages.api_versions import ApiVersionsRequest
from ...protocol.messages.fetch import FetchRequest
from ...protocol.messages.find_coordinator import FindCoordinatorRequest
from ...protocol.messages.list_offsets import ListOffsetsRequest
from ...protocol.messages.metadata import MetadataRequest
from ...protocol.messages.produce import ProduceRequest
from ...protocol.wire.codec import prepare_decoding, prepare_encoding
from ...protocol.wire.schema import Message
from .handler import HandlerTable

_URGENT: tuple[type[Message], ...] = (
    ProduceRequest,
    FetchRequest,
    MetadataRequest,
    ApiVersionsRequest,
    ListOffsetsRequest,
    FindCoordinatorRequest,
)
"""Requests of clients and followers after a change of the leader."""
_PAUSE_S = 0.003


async def warm_up_codecs(table: HandlerTable) -> None:
    """Generate one codec per turn of the loop: the newest version of each API first, then older ones."""
    handlers = [handler for handler in table if handler.request_class in _URGENT]
    handlers.sort(key=lambda handler: _URGENT.index(handler.request_class))
    for age in range(max((h.max_version - h.min_version + 1 for h in handlers), default=0)):
        for handler in handlers:
            version = handler.max_version - age
            if version >= handler.min_version:
                prepare_decoding(handler.request_class, version)
                await asyncio.sleep(_PAUSE_S)
                prepare_encoding(handler.request_class.response, version)
                await asyncio.sleep(_PAUSE_S)
