"""The server: sockets, frames, the routing of requests to handlers, and the purgatory. It depends on no API.

`Server` accepts connections and owns the receive buffers. A `ClientConnection` splits its byte stream into request
frames in place, and sends replies in request order. The `Router` decodes a frame and calls the handler registered for
it with `@handles`. The rule: a request's bytes are in a pooled buffer, and are valid only until a plain handler
returns.
"""

from .buffers import BufferPool
from .connection import ClientConnection, ConnectionLimits
from .handler import ClientRequest, HandlerTable, handles
from .listener import ListeningSocket, PortInUse
from .purgatory import Parked, Purgatory
from .router import Router
from .sending import SliceLike
from .server import Server, ServerConfig

__all__ = [
    "BufferPool",
    "ClientConnection",
    "ClientRequest",
    "ConnectionLimits",
    "HandlerTable",
    "ListeningSocket",
    "Parked",
    "PortInUse",
    "Purgatory",
    "Router",
    "Server",
    "ServerConfig",
    "SliceLike",
    "handles",
]
