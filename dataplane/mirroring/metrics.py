"""Metrics of mirrors, reported by the leaders of copies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from ...protocol.cluster.cluster_image import ClusterImage
from ...protocol.exposition import Family, counter, gauge
from ..runtime.clocks import monotonic_ms, wall_ms
from .compaction_hold import held_bytes, held_from
from .copies import NEVER, Copy
from .mirrors import Mirrors

_COPY = ("mirror", "topic", "partition")


MIRROR_LAG = gauge(
    "ottla_mirror_lag_records",
    "Offsets between the end of a copy and the high watermark of its source.",
    *_COPY,
)
MIRROR_LAG_BYTES = gauge(
    "ottla_mirror_lag_bytes", "The lag in bytes, estimated by the size of the last copied records.", *_COPY
)
MIRROR_BEHIND = gauge(
    "ottla_mirror_behind_milliseconds",
    "Milliseconds since a copy last had all records of its source; absent if it never had them under this leader.",
    *_COPY,
)
MIRROR_BYTES = counter("ottla_mirror_copied_bytes_total", "Bytes that this broker has copied.", "mirror")
MIRROR_FAULTS = gauge(
    "ottla_mirror_faulted_partitions",
    "Partitions of an active mirror that this broker leads and does not copy until a person decides.",
    "mirror",
)
MIRROR_REACHED = gauge("ottla_mirror_source_reached", "1 while this broker reaches the source.", "mirror")
MIRROR_CUT_AGE = gauge(
    "ottla_mirror_cut_age_milliseconds",
    "Milliseconds since the source reported the newest cut that all copies have reached; absent if there is none.",
    "mirror",
)

MIRROR_HELD = gauge(
    "ottla_mirror_compaction_held_bytes",
    "Bytes after the cut at which a compacted copy may be promoted; compaction skips them until a newer cut.",
    *_COPY,
)


def _held(image: ClusterImage, copy: Copy) -> int | None:
    if not copy.partition.log.config.compacted:
        return None
    offset = held_from(image, copy.partition)
    return 0 if offset is None else held_bytes(copy.partition, offset)


class MirrorMetrics:
    """Metrics of all active mirrors, as this broker reports them for the copies that it leads."""

    def __init__(self, image: Callable[[], ClusterImage], mirrors: Mirrors) -> None:
        self._image = image
        self._mirrors = mirrors

    def metric_families(self) -> Iterator[Family]:
        """Yield the metrics."""
        image, links = self._image(), self._mirrors.links
        copies = [(name, copy) for name, link in links.items() for copy in link.copies if copy.is_led]
        answered = [
            ((name, copy.partition.topic, copy.partition.index), copy)
            for name, copy in copies
            if copy.source_high_watermark >= 0
        ]
        yield Family(MIRROR_LAG, [(labels, copy.lag) for labels, copy in answered])
        yield Family(MIRROR_LAG_BYTES, [(labels, copy.lag_bytes) for labels, copy in answered])
        now_ms = monotonic_ms()
        behind = [(labels, copy.behind_ms(now_ms)) for labels, copy in answered]
        yield Family(MIRROR_BEHIND, [(labels, ms) for labels, ms in behind if ms != NEVER])
        faults = Counter(name for name, copy in copies if copy.state(image).fault is not None)
        yield Family(MIRROR_FAULTS, [((name,), faults[name]) for name in links])
        yield Family(MIRROR_BYTES, [((name,), link.copied_bytes) for name, link in links.items()])
        yield Family(
            MIRROR_HELD,
            [(labels, held) for labels, copy in answered if (held := _held(image, copy)) is not None],
        )
        reached = {name: not link.trouble for name, link in links.items()}
        cuts = {name: image.mirror_cuts.of(name).newest_whole(image.copies_of(name)) for name in links}
        ages = [((name,), max(0, wall_ms() - cut.time_ms)) for name, cut in cuts.items() if cut is not None]
        yield Family(MIRROR_CUT_AGE, ages)
        yield Family(MIRROR_REACHED, [((name,), int(is_reached)) for name, is_reached in reached.items()])
