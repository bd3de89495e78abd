"""Scenes of the mutants in `mutants_of_disks`."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from unittest.mock import patch

from ottla.dataplane.log import LogConfig
from ottla.dataplane.storage.directory import LogDirectory
from ottla.protocol.cluster.cluster_image import PartitionState
from ottla.protocol.errors import KafkaError
from tests.dataplane.replication.harness import batch
from tests.simulation.cluster.scenes import formed, shows
from tests.simulation.cluster.scenes_of_offsets import SCENES as SCENES


@shows("full-disk-kept-quiet")
def nobody_hears_of_a_record_that_does_not_fit(folder: Path) -> bool:
    directory = LogDirectory.open(folder, "cluster", 1, new_directory_id=b"d" * 16)
    heard: list[KafkaError] = []
    directory.on_lack = lambda _directory, error: heard.append(error)
    log = directory.create("t", 0, b"t" * 16, LogConfig(), now_ms=0)
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    try:
        with patch("os.pwrite", side_effect=full):
            log.produced.append(memoryview(batch(b"m")), 0, 0)
    except KafkaError:
        return not heard
    finally:
        directory.close(clean=False)
    raise AssertionError("a full disk took a record")


@shows("offline-waited-for")
def a_follower_that_is_offline_holds_the_high_watermark(folder: Path) -> bool:
    cluster = formed(folder)
    partition = cluster[1].partition
    sent = cluster[1].produce(b"m")
    cluster.fetch(2, 1, rounds=2)
    assert sent.outcome is None
    partition.become_leader(
        PartitionState(
            (1, 2, 3),
            (1, 2),
            leader=1,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch + 1,
            offline_replicas=(3,),
        )
    )
    return sent.outcome is None
