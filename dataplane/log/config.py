"""Settings of a partition's log, from its topic's configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

from ...protocol.records.compression import DECOMPRESSED_BYTES_MAX, Compression
from ...protocol.settings.config_fields import from_settings, setting

_EXPANSION_MAX = 64
_EXPANDED_BYTES_MIN = 16 << 20
OFFSETS_MAX = 2**31
"""The most offsets of a segment, gaps included: indexes store offsets relative to the segment's base offset."""


class StoredCompression(NamedTuple):
    """The compression of a topic's stored batches, whatever their producers used."""

    codec: Compression
    level: int | None
    """The level on the codec's own scale; None if the codec has no levels."""


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The settings of a topic that concern its partitions' logs, under their names (dots become underscores, and
    `ottla.` is left out)."""

    segment_bytes: int = setting("segment.bytes")
    segment_ms: int = setting("segment.ms")
    segment_jitter_ms: int = setting("segment.jitter.ms")
    segment_index_bytes: int = setting("segment.index.bytes")
    index_interval_bytes: int = setting("index.interval.bytes")
    max_message_bytes: int = setting("max.message.bytes")
    message_timestamp_type: str = setting("message.timestamp.type", str)
    message_timestamp_before_max_ms: int = setting("message.timestamp.before.max.ms")
    message_timestamp_after_max_ms: int = setting("message.timestamp.after.max.ms")
    cleanup_policy: str = setting("cleanup.policy", ",".join)
    retention_ms: int = setting("retention.ms")
    """The age in ms at which records are deleted; -1 for no limit."""
    retention_bytes: int = setting("retention.bytes")
    """The size from which a log's old segments are deleted; -1 for no limit."""
    file_delete_delay_ms: int = setting("file.delete.delay.ms")
    delete_retention_ms: int = setting("delete.retention.ms")
    """The time in ms for which a tombstone stays after compaction first met it."""
    min_cleanable_dirty_ratio: float = setting("min.cleanable.dirty.ratio", float)
    min_compaction_lag_ms: int = setting("min.compaction.lag.ms")
    max_compaction_lag_ms: int = setting("max.compaction.lag.ms")
    flush_messages: int = setting("flush.messages")
    """Records between flushes; 1 makes records durable before they are acknowledged."""
    flush_ms: int = setting("flush.ms")
    """The longest time in ms that a record may wait for a flush."""
    producer_id_expiration_ms: int = setting("producer.id.expiration.ms")
    compression_type: str = setting("compression.type", str)
    compression_gzip_level: int = setting("compression.gzip.level")
    compression_lz4_level: int = setting("compression.lz4.level")
    compression_zstd_level: int = setting("compression.zstd.level")
    lake_enable: bool = setting("ottla.lake.enable", bool)
    lake_table: str = setting("ottla.lake.table", str)
    lake_hold: bool = setting("ottla.lake.hold", bool)
    lake_hold_max_ms: int = setting("ottla.lake.hold.max.ms")
    """The longest time in ms that retention waits for the lake's table."""

    @property
    def expanded_bytes_max(self) -> int:
        """The most bytes that one compressed batch may expand to: 64 times `max.message.bytes`, at least 16 MiB, and at
        most the limit of clients."""
        return min(max(_EXPANSION_MAX * self.max_message_bytes, _EXPANDED_BYTES_MIN), DECOMPRESSED_BYTES_MAX)

    @property
    def stamps_at_append(self) -> bool:
        """True if the log, not the producer, sets the timestamps."""
        return self.message_timestamp_type == "LogAppendTime"

    @property
    def stored_compression(self) -> StoredCompression | None:
        """The compression of stored batches; None if they keep the compression of their producers."""
        match self.compression_type:
            case "producer":
                return None
            case "uncompressed":
                return StoredCompression(Compression.NONE, None)
            case "gzip":
                return StoredCompression(Compression.GZIP, self.compression_gzip_level)
            case "lz4":
                return StoredCompression(Compression.LZ4, self.compression_lz4_level)
            case "zstd":
                return StoredCompression(Compression.ZSTD, self.compression_zstd_level)
            case codec:
                return StoredCompression(Compression[codec.upper()], None)

    @property
    def deletes(self) -> bool:
        """True if the topic's cleanup policy deletes old segments."""
        return "delete" in self.cleanup_policy

    @property
    def waits_for_table(self) -> bool:
        """True if retention waits for the lake's table."""
        return self.lake_enable and self.lake_hold and self.deletes

    @property
    def compacted(self) -> bool:
        """True if the topic's cleanup policy compacts, which may leave gaps between offsets."""
        return "compact" in self.cleanup_policy

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """Return the settings in validated topic configs by Kafka's names; names that do not concern the log are
        ignored.

        Raises ConfigError for a value that the table of keys does not permit.
        """
        config = from_settings(cls, properties)
        if config.compacted and config.max_compaction_lag_ms < config.segment_ms:
            # The active segment is not compacted, so it has to be rolled in time (KIP-354).
            return replace(config, segment_ms=config.max_compaction_lag_ms)
        return config
