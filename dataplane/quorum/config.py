"""What a quorum session needs to know about its broker and the quorum."""

from collections.abc import Mapping
from dataclasses import dataclass

from ...network.tls.nodes import NodeTls
from ...protocol.messages.metadata_records import BrokerListener
from ...protocol.session.handshake import LinkSecurity


@dataclass(frozen=True, slots=True)
class MetadataPosition:
    """How far metadata has been followed: its offset, and the mark of the history up to there (0 unknown)."""

    offset: int
    history: int


@dataclass(frozen=True, slots=True)
class QuorumSessionConfig:
    """The broker's identity, the quorum's addresses and the timing of heartbeats."""

    broker_id: int
    cluster_id: str
    security: LinkSecurity
    #: every quorum node: id -> (host, port)
    voters: Mapping[int, tuple[str, int]]
    #: 16 bytes, drawn anew by every process
    incarnation: bytes
    listeners: tuple[BrokerListener, ...]
    #: from the clean-shutdown file; -1 if the last stop was not a clean one
    previous_broker_epoch: int = -1
    #: under the links with the quorum; None: they have no TLS
    tls: NodeTls | None = None
    rack: str | None = None
    host: str | None = None
    log_dirs: tuple[bytes, ...] = ()
    #: how far this broker, in an earlier process, has followed the metadata: the quorum must have that still
    reached: MetadataPosition | None = None
    #: the local address of the UDP socket that sends heartbeats and answers probes
    heartbeat_host: str = "0.0.0.0"
    heartbeat_interval_ms: int = 500
    session_timeout_ms: int = 3000
    reconnect_ms: tuple[int, int] = (100, 200)
    connect_timeout_ms: int = 2000
    #: how long a command may take before its caller is told REQUEST_TIMED_OUT
    command_timeout_ms: int = 15_000
