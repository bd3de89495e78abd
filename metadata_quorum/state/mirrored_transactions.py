"""Transactional ids of a mirror's source, which continue here after a promotion at a cut."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...protocol.cluster.transaction_table import TransactionMetadata
from .producer_ids import next_producer_id
from .transaction_audience import Telling
from .workspace import Workspace


def take_versions(work: Workspace, versions: Mapping[str, int], *, replaces: bool) -> None:
    """Take over the application versions that were committed up to the cut, for the ids' next owners.

    An id with a higher version here keeps it, because another mirror of the same source was promoted before. After a
    failback the source's version `replaces` it: the commits here were discarded, and a batch of the same number at the
    source is another one.
    """
    for name, version in sorted(versions.items()):
        present = work.image.transactions.by_id.get(name)
        if present is None:
            present = TransactionMetadata(name, next_producer_id(work), 0)
        if present.app_version < version or (replaces and present.app_version != version):
            with Telling(work, name) as telling:
                telling.state(replace(present, app_version=version))
