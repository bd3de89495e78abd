"""The addresses of a source lead to another cluster, as after a change in DNS: no record is copied from it."""

from __future__ import annotations

from ottla.dataplane.mirroring.copies import NOBODY
from tests.dataplane.mirroring.test_placing import placing_mirror
from tests.dataplane.mirroring.test_rounds import SOURCE_BROKER


async def test_nothing_is_copied_from_another_cluster() -> None:
    """The other cluster may have topics of these ids, in the same leader epochs, if it is another mirror of the same
    source.
    """
    async with placing_mirror() as placing:
        assert (await placing.looked()).source_leader == SOURCE_BROKER
        placing.source.cluster_id = "elsewhere"
        copy = await placing.looked()
        assert copy.source_leader == NOBODY
        assert "is cluster elsewhere now" in copy.trouble
        assert "is cluster elsewhere now" in placing.link.trouble
        placing.source.cluster_id = "there"
        assert (await placing.looked()).source_leader == SOURCE_BROKER
