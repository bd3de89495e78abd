"""Promises about transactions with several writers, and about the application versions that commits carry."""

from __future__ import annotations

from collections.abc import Iterator

from ..operations import Outcome, Send
from ..transactions import COMMITTED_BEFORE, Transaction
from .base import Invariant
from .facts import Facts, HighestBefore, ended, told

Version = tuple[str, int]
"""A transactional id, and an application version."""


class VersionNotOnce(Invariant):
    """Work under an application version takes effect once: one of all its attempts, with the records of all writers
    that the owner had chosen.

    This holds whichever processes died meanwhile, and however often the work was repeated. An owner that is answered
    "committed before" finds these records. (Deleted and lost records are exempt.)
    """

    scenarios = (10, 30, 33, 34)

    def violations(self, facts: Facts) -> Iterator[str]:
        attempts = _attempts(facts)
        yield from self._committed_before(facts, attempts)
        if not facts.history.committed_reads:
            return
        known = _known(facts, attempts)
        for version, owners in attempts.items():
            there: list[Transaction] = []
            may_be_hidden = False
            for owner in owners:
                sends = [
                    send
                    for part in facts.wholes[owner.name]
                    if part.is_committed is not False
                    for send in facts.sent_in.get(part.name, ())
                ]
                found = [send for send in sends if facts.stands_committed(send)]
                must = [
                    send for send in sends if send.outcome is Outcome.OK and facts.must_stand_committed(send)
                ]
                if found:
                    there.append(owner)
                    yield from self._missing(owner, found[0], must, facts)
                elif owner.is_committed is not False and not must:
                    may_be_hidden = True
            if len(there) > 1:
                yield f"version {version} is there {len(there)} times: {' and '.join(map(ended, there))}"
            elif not there and version in known and not may_be_hidden:
                yield f"version {version} is not there, though {known[version]}"

    def _missing(self, owner: Transaction, found: Send, must: list[Send], facts: Facts) -> Iterator[str]:
        missing = next((send for send in must if not facts.stands_committed(send)), None)
        if missing is not None:
            yield f"{ended(owner)}: {told(found)} is there, and not {told(missing)}"

    def _committed_before(self, facts: Facts, attempts: dict[Version, list[Transaction]]) -> Iterator[str]:
        for owner in facts.history.transactions:
            if owner.error != COMMITTED_BEFORE or owner.app_version is None or owner.completed_s is None:
                continue
            if not any(
                other.is_committed is not False
                and other.asked_s is not None
                and other.asked_s < owner.completed_s
                for (transactional_id, version), others in attempts.items()
                if transactional_id == owner.transactional_id and version >= owner.app_version
                for other in others
            ):
                yield f"{ended(owner)}; nobody had asked to commit this version or a later one"


class VersionWentBack(Invariant):
    """A producer that starts gets the application version of the last commit with a version.

    The version is never below one that was reported or committed before the producer asked, and never one whose commit
    was not requested.
    """

    scenarios = (30, 33)

    def violations(self, facts: Facts) -> Iterator[str]:
        attempts = _attempts(facts)
        for transactional_id in {version.transactional_id for version in facts.history.told_versions}:
            answers = [
                version
                for version in facts.history.told_versions
                if version.transactional_id == transactional_id
            ]
            known = [(answer.at_s, float(answer.version)) for answer in answers if answer.version is not None]
            known += [
                (owner.completed_s, float(version))
                for (name, version), owners in attempts.items()
                for owner in owners
                if name == transactional_id and owner.is_committed and owner.completed_s is not None
            ]
            highest = HighestBefore(known)
            for answer in answers:
                before = highest.at(answer.asked_s)
                if (-1 if answer.version is None else answer.version) < before:
                    yield f"{answer}; {before:g} was the last one before"
                if answer.version is not None and not any(
                    owner.is_committed is not False
                    and owner.asked_s is not None
                    and owner.asked_s < answer.at_s
                    for owner in attempts.get((transactional_id, answer.version), ())
                ):
                    yield f"{answer}; nobody had asked to commit it"


class WriterOutlivesItsOwner(Invariant):
    """Once another producer gets a transactional id, later sends of other writers in the previous producer's
    transactions are not written.
    """

    scenarios = (30, 31)

    def violations(self, facts: Facts) -> Iterator[str]:
        for name, sends in facts.sent_in.items():
            part = facts.transactions[name]
            if part.owner is None:
                continue
            owner = facts.transactions[part.owner]
            replaced_s = facts.replaced_s(owner)
            if replaced_s is None:
                continue
            for send in sends:
                if send.invoked_s > replaced_s and (send.outcome is Outcome.OK or facts.was_read(send)):
                    yield f"{told(send)}; the owner, of {ended(owner)}, was replaced at {replaced_s:.6f}"


def _attempts(facts: Facts) -> dict[Version, list[Transaction]]:
    """Return the owners' parts of all attempts at each version."""
    found: dict[Version, list[Transaction]] = {}
    for transaction in facts.history.transactions:
        if transaction.app_version is not None and transaction.owner is None:
            found.setdefault((transaction.transactional_id, transaction.app_version), []).append(transaction)
    return found


def _known(facts: Facts, attempts: dict[Version, list[Transaction]]) -> dict[Version, str]:
    """Return the versions that were reported as committed, each with the report."""
    found: dict[Version, str] = {}
    for version, owners in attempts.items():
        for owner in owners:
            if owner.is_committed:
                found[version] = ended(owner)
    for version in facts.history.told_versions:
        if version.version is not None:
            found.setdefault((version.transactional_id, version.version), str(version))
    return found
