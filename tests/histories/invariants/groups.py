"""Promises to consumer groups: commits hold, replaced members cannot commit, a partition has one owner."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, nextafter

from ..operations import NOTHING_COMMITTED, Commit, Fetched, Outcome
from .base import Invariant
from .facts import Facts, HighestBefore, named

OFFSETS_TOPIC = "__consumer_offsets"
Slot = tuple[str, str, int]
"""Group, topic, partition."""


class CommittedOffsetWentBack(Invariant):
    """The committed offset that a group fetches is the offset of the latest commit.

    A change of coordinator undoes no acknowledged commit. A refused commit never shows. The offset goes back only when
    a member commits a lower offset. Judged as a register: a commit without an answer may take effect at any time until
    it is first seen; a commit that was sent several times may take effect at any time.
    """

    scenarios = (36, 37)

    def violations(self, facts: Facts) -> Iterator[str]:
        if any(loss.topic in (None, OFFSETS_TOPIC) for loss in facts.history.lossy):
            return
        commits: dict[Slot, list[Commit]] = {}
        for commit in facts.history.commits:
            commits.setdefault((commit.group, commit.topic, commit.partition), []).append(commit)
        answers: dict[Slot, list[Fetched]] = {}
        for answer in facts.history.fetched:
            answers.setdefault((answer.group, answer.topic, answer.partition), []).append(answer)
        for slot, fetched in answers.items():
            yield from self._of_slot(slot, commits.get(slot, []), fetched)

    def _of_slot(self, slot: Slot, commits: list[Commit], fetched: list[Fetched]) -> Iterator[str]:
        by_offset: dict[int, list[Commit]] = {}
        for commit in commits:
            if commit.outcome is not Outcome.FAIL:
                by_offset.setdefault(commit.offset, []).append(commit)
        first_seen: dict[int, float] = {}
        for answer in fetched:
            first_seen[answer.offset] = min(answer.completed_s, first_seen.get(answer.offset, inf))

        def in_force_s(commit: Commit) -> float:
            """Return the latest time at which the commit had taken effect."""
            if commit.outcome is Outcome.OK and commit.completed_s is not None:
                return commit.completed_s
            alone = len(by_offset[commit.offset]) == 1
            return first_seen.get(commit.offset, inf) if alone else inf

        known = [commit for same in by_offset.values() for commit in same]
        settled = HighestBefore((in_force_s(commit), commit.invoked_s) for commit in known)
        in_force = {
            offset: HighestBefore(
                (commit.invoked_s, inf if commit.retried else in_force_s(commit)) for commit in made
            )
            for offset, made in by_offset.items()
        }
        for answer in fetched:
            begun_s = settled.at(answer.invoked_s)
            same = in_force.get(answer.offset)
            ended_s = -inf if same is None else same.at(nextafter(answer.completed_s, inf))
            possible = ended_s > -inf and ended_s >= begun_s
            if answer.offset == NOTHING_COMMITTED:
                possible = begun_s == -inf
            if not possible:
                latest = [commit for commit in known if commit.invoked_s == begun_s]
                yield (
                    f"group {slot[0]} was told offset {answer.offset} for {named(slot[1:])} "
                    f"at {answer.completed_s:.6f}, asked at {answer.invoked_s:.6f}; "
                    f"before that {latest[0] if latest else 'nothing'} was in force"
                )


class ZombieCommit(Invariant):
    """A member that was replaced cannot move the offsets of its successor.

    Once a generation is in force, a commit of an older generation is refused (KIP-848: once another member owns the
    partition at a later epoch). Commits in transactions are exempt: the group's generation is checked when they are
    sent, and they take effect when the transaction ends.
    """

    scenarios = (37,)

    def violations(self, facts: Facts) -> Iterator[str]:
        accepted = [
            commit
            for commit in facts.history.commits
            if commit.outcome is Outcome.OK and commit.generation >= 0 and commit.transaction is None
        ]
        yield from self._generations(facts, [commit for commit in accepted if not commit.own_epoch])
        yield from self._epochs(facts, [commit for commit in accepted if commit.own_epoch])

    def _generations(self, facts: Facts, accepted: list[Commit]) -> Iterator[str]:
        seen: dict[str, list[tuple[float, float]]] = {}
        for commit in accepted:
            if commit.completed_s is not None:
                seen.setdefault(commit.group, []).append((commit.completed_s, commit.generation))
        for owned in facts.history.owned:
            if owned.group in seen:
                seen[owned.group].append((owned.from_s, owned.generation))
        in_force = {group: HighestBefore(known) for group, known in seen.items()}
        for commit in accepted:
            generation = in_force[commit.group].at(commit.invoked_s) if commit.group in in_force else -1
            if generation > commit.generation:
                yield f"{commit} was accepted; generation {generation:.0f} was in force"

    def _epochs(self, facts: Facts, accepted: list[Commit]) -> Iterator[str]:
        if not accepted:
            return
        owners: dict[Slot, dict[str, list[tuple[float, float]]]] = {}
        for owned in facts.history.owned:
            slot = (owned.group, owned.topic, owned.partition)
            owners.setdefault(slot, {}).setdefault(owned.member, []).append((owned.from_s, owned.generation))
        epochs = {
            slot: {member: HighestBefore(known) for member, known in members.items()}
            for slot, members in owners.items()
        }
        for commit in accepted:
            for member, known in epochs.get((commit.group, commit.topic, commit.partition), {}).items():
                epoch = known.at(commit.invoked_s)
                if member != commit.member and epoch > commit.generation:
                    yield f"{commit} was accepted; {member} owned the partition at epoch {epoch:.0f}"


class TwoOwners(Invariant):
    """A partition has one owner in each generation: no two members of the group process the same records."""

    scenarios = (38,)

    def violations(self, facts: Facts) -> Iterator[str]:
        owners: dict[tuple[str, str, int, int], str] = {}
        for owned in facts.history.owned:
            key = (owned.group, owned.topic, owned.partition, owned.generation)
            owner = owners.setdefault(key, owned.member)
            if owner != owned.member:
                yield f"{owned}; in this generation it is {owner}'s"
