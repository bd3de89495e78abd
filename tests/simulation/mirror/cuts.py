"""Cuts of the source: copies report true positions for them, and a promotion at a cut tears no transaction."""

from __future__ import annotations

from collections import Counter, defaultdict

from ottla.protocol.cluster.cluster_image import ClusterImage
from ottla.protocol.cluster.mirror_table import NO_EPOCH, NO_ROUND, MirrorPhase
from tests.histories.invariants import InvariantBroken
from tests.simulation.cluster.cluster import SimulatedCluster
from tests.simulation.mirror.clients import EXACT, MIRROR, PLAIN
from tests.simulation.mirror.endings import leaders_of
from tests.simulation.mirror.images import NewestImage
from tests.simulation.mirror.invariants import FaultsHaveCauses, offsets_at
from tests.simulation.mirror.ledger import Place, SourceLedger

TRANSACTIONAL = (PLAIN, EXACT)
"""Topics to which the source's transactions write, and which lose no records."""


class CutsAreTrue:
    """An invariant: all in-sync replicas of a copy have the data that the copy reports below a cut.

    All transactions decided up to the cut lie below the reported offset, all later ones do not. No round has an older
    cut than an earlier round.
    """

    def __init__(self, ledger: SourceLedger, target: NewestImage, faults: FaultsHaveCauses) -> None:
        self._ledger = ledger
        self._faults = faults
        self._cuts: dict[int, int] = {}
        self._told: dict[tuple[Place, int], int] = {}
        self.counts: Counter[str] = Counter()
        target.listeners.append(self._look)

    def _look(self, image: ClusterImage) -> None:
        cuts = image.mirror_cuts.of(MIRROR)
        mirror = image.mirrors.by_name.get(MIRROR)
        if mirror is None or mirror.phase is MirrorPhase.PROMOTED:
            return
        for mirror_round in cuts.rounds:
            if mirror_round.number not in self._cuts:
                before = max(
                    (cut for number, cut in self._cuts.items() if number < mirror_round.number), default=-1
                )
                if mirror_round.cut < before:
                    raise InvariantBroken(
                        "no cut goes backwards",
                        f"round {mirror_round.number} is cut {mirror_round.cut}, {before} was before it",
                    )
                self._cuts[mirror_round.number] = mirror_round.cut
                self.counts["rounds announced"] += 1
        for place, reached in cuts.reached.items():
            for number, offset in reached:
                self._reached(image, place, number, offset)
        whole = cuts.newest_whole(image.copies_of(MIRROR))
        if whole is not None:
            self.counts["newest whole round"] = max(self.counts["newest whole round"], whole.number + 1)

    def _reached(self, image: ClusterImage, place: Place, number: int, offset: int) -> None:
        key = (place, number)
        if self._told.get(key) == offset:
            return
        topic, committed = image.topics_by_id[place[0]].name, self._faults.committed.get(place, 0)
        if offset > committed:
            raise InvariantBroken(
                "what is reached is here",
                f"{topic}-{place[1]} tells to have reached offset {offset} of round {number}, and has {committed}",
            )
        self._told[key] = offset
        if topic in TRANSACTIONAL:
            self.counts["cuts reached"] += 1

    def check(self, image: ClusterImage) -> None:
        """Check the cuts against the source's markers, once all decisions of the source are known.

        Raises InvariantBroken.
        """
        for (place, number), offset in self._told.items():
            topic = image.topics_by_id.get(place[0])
            known = image.mirrors.topics.get(place[0])
            if topic is None or known is None or topic.name not in TRANSACTIONAL:
                continue
            for at, commit_index in self._ledger.markers_of((known.source_topic_id, place[1])):
                if (commit_index <= self._cuts[number]) != (at < offset):
                    raise InvariantBroken(
                        "cuts are where they are said to be",
                        f"{topic.name}-{place[1]} is cut at {offset} in round {number}, cut {self._cuts[number]}; the "
                        f"marker of commit index {commit_index} lies at {at}",
                    )


def check_whole(target: SimulatedCluster, ledger: SourceLedger) -> Counter[str]:
    """Check that a promotion at a cut keeps, in all partitions, exactly the source's decisions up to the cut.

    Raises InvariantBroken. For another promotion, return the number of torn transactions.
    """
    image = target.newest_image()
    assert image is not None
    mirror, cuts = image.mirrors.by_name[MIRROR], image.mirror_cuts.of(MIRROR)
    at = next(
        (mirror_round for mirror_round in cuts.rounds if mirror_round.number == mirror.promoted_round), None
    )
    present: defaultdict[int, dict[str, bool]] = defaultdict(dict)
    for node, partition in leaders_of(target, image):
        topic = image.mirrors.topics.get(partition.topic_id)
        if topic is None or partition.topic not in TRANSACTIONAL:
            continue
        copy = topic.partitions[partition.index]
        if copy.promoted_epoch == NO_EPOCH:
            raise InvariantBroken("a mirror is promoted as a whole", f"{partition!r} is not: {copy}")
        first = partition.log.leader_epochs.start_of(copy.promoted_epoch)
        for offset, commit_index in ledger.markers_of((topic.source_topic_id, partition.index)):
            present[commit_index][f"{partition!r}"] = offset < first
            if at is not None and (offset < first) != (commit_index <= at.cut):
                raise InvariantBroken(
                    "no transaction is torn",
                    f"promoted at cut {at.cut}; {node.name} has {partition!r} up to {first}, and the marker of commit "
                    f"index {commit_index} lies at {offset}",
                )
    if at is not None:
        return Counter({"promoted at a cut": 1})
    torn = sum(len(set(found.values())) > 1 for found in present.values())
    return Counter({"transactions torn by promotions without a cut": torn})


def check_offsets(target: SimulatedCluster, group: str) -> None:
    """Check that after a promotion at a cut no group is ahead of the cut, and no offsets are pending.

    Raises InvariantBroken.
    """
    image = target.newest_image()
    assert image is not None
    if image.mirrors.by_name[MIRROR].promoted_round == NO_ROUND:
        return
    if image.mirror_offsets.due:
        raise InvariantBroken(
            "groups get their offsets", f"some wait yet: {sorted(image.mirror_offsets.due)}"
        )
    for node in target.brokers.values():
        for (topic, index), offset in offsets_at(node, group).items():
            copy = image.mirrors.partition(image.topics[topic].id, index)
            if copy is not None and copy.resumption is not None and offset > copy.resumption.offset:
                raise InvariantBroken(
                    "offsets are those of the cut",
                    f"{node.name} has {offset} for {topic}-{index} of group {group}, which is cut at "
                    f"{copy.resumption.offset}",
                )
