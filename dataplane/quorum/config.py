"""Settings of a quorum session: the broker's identity, the quorum's addresses, and times."""

from collections.abc import Mapping
from dataclasses import dataclass

from ...network.tls.nodes import NodeTls
from ...protocol.messages.metadata_records import BrokerListener
from ...protocol.session.handshake import LinkSecurity
from ...protocol.settings.config_fields import setting


@dataclass(frozen=True, slots=True)
class MetadataPosition:
    """A position in the metadata that the broker has followed: the offset, and a mark that differs if the metadata up
    to the offset differ (0 if unknown)."""

    offset: int
    history: int


@dataclass(frozen=True, slots=True)
class QuorumSessionConfig:
    """The settings of a broker's session with the quorum: the broker's identity, the quorum's addresses and the timing
    of heartbeats."""

    broker_id: int
    cluster_id: str
    security: LinkSecurity
    #: every quorum node: id -> (host, port)
    voters: Mapping[int, tuple[str, int]]
    #: 16 random bytes, different for every process
    incarnation: bytes
    listeners: tuple[BrokerListener, ...]
    #: the epoch in the clean-shutdown file; -1 if the last stop was not clean
    previous_broker_epoch: int = -1
    #: TLS for the links with the quorum; None if they use no TLS
    tls: NodeTls | None = None
    rack: str | None = None
    host: str | None = None
    log_dirs: tuple[bytes, ...] = ()
    #: the metadata position that an earlier process of this broker reached, which the quorum must still have
    reached: MetadataPosition | None = None
    #: the local address of the UDP socket that sends heartbeats and answers probes
    heartbeat_host: str = "0.0.0.0"
    heartbeat_interval_ms: int = setting("broker.heartbeat.interval.ms")
    session_timeout_ms: int = setting("broker.session.timeout.ms")
    #: silence after which the quorum may fence this broker, which must send several heartbeats within it
    silence_fence_ms: int = setting("broker.silence.fence.ms")
    reconnect_ms: tuple[int, int] = (100, 200)
    connect_timeout_ms: int = 2000
    #: milliseconds after which a command fails with REQUEST_TIMED_OUT
    command_timeout_ms: int = 15_000
