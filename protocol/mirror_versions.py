"""Application versions that transactional ids of a mirror's source had at its cuts: a part of the image. Pure.

A promotion at a cut gives them to this cluster's transactional ids, so that a job is told what was committed up to
there, and neither writes it again nor leaves anything out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from .messages.mirror_records import MirroredAppVersion, MirrorVersionsRecord

NO_VERSION: Final = -1
NOTHING_TOLD: Final = -1


@dataclass(slots=True)
class MirrorVersions:
    """Of one mirror."""

    told_offset: int = NOTHING_TOLD
    """The source's metadata offset up to which it has told what changed."""
    by_id: dict[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    """By transactional id: (cut, version from that cut on), the cuts rise."""
    _changing: set[str] = field(default_factory=set)
    """Those that have several."""

    def apply(self, record: MirrorVersionsRecord, needed_from: int) -> None:
        """Fold one record. No cut before `needed_from` is asked about any more."""
        told = {one.transactional_id: one.app_version for one in record.versions}
        if record.is_whole:
            told = dict.fromkeys(self.by_id, NO_VERSION) | told
        for name, version in told.items():
            self._set(name, record.cut, version, needed_from)
        self.told_offset = record.next_offset

    def _set(self, name: str, cut: int, version: int, needed_from: int) -> None:
        known = [one for one in self.by_id.get(name, ()) if one[0] < cut]
        if (known[-1][1] if known else NO_VERSION) != version:
            known.append((cut, version))
        self._keep(name, known, needed_from)

    def trim(self, needed_from: int | None) -> None:
        """No cut before this one is asked about any more; None: only newer ones than have been told."""
        for name in list(self._changing):
            known = self.by_id[name]
            self._keep(name, list(known), known[-1][0] if needed_from is None else needed_from)

    def _keep(self, name: str, known: list[tuple[int, int]], needed_from: int) -> None:
        while len(known) > 1 and known[1][0] <= needed_from:
            del known[0]
        while known and known[0][1] == NO_VERSION:
            del known[0]
        if known:
            self.by_id[name] = tuple(known)
        else:
            self.by_id.pop(name, None)
        (self._changing.add if len(known) > 1 else self._changing.discard)(name)

    def at_cut(self, cut: int) -> dict[str, int]:
        """Which ids had versions there, and which."""
        found = {}
        for name, known in self.by_id.items():
            version = next((version for since, version in reversed(known) if since <= cut), NO_VERSION)
            if version != NO_VERSION:
                found[name] = version
        return found

    def copy(self) -> MirrorVersions:
        """As it is now."""
        return MirrorVersions(self.told_offset, dict(self.by_id), set(self._changing))

    def records(self, mirror: str) -> Iterator[MirrorVersionsRecord]:
        """Records that rebuild this, in a fixed order."""
        if self.told_offset == NOTHING_TOLD:
            return
        by_cut: dict[int, list[MirroredAppVersion]] = {}
        for name, known in sorted(self.by_id.items()):
            for cut, version in known:
                told = MirroredAppVersion(transactional_id=name, app_version=version)
                by_cut.setdefault(cut, []).append(told)
        for cut in sorted(by_cut) or [-1]:
            yield MirrorVersionsRecord(
                mirror=mirror, cut=cut, next_offset=self.told_offset, versions=by_cut.get(cut, [])
            )

    def broken(self) -> str:
        """What contradicts itself; empty if nothing does."""
        for name, known in self.by_id.items():
            cuts = [cut for cut, _ in known]
            if not cuts or cuts != sorted(set(cuts)) or (len(cuts) > 1) != (name in self._changing):
                return f"the versions of {name!r} are {known}"
        return ""


def mirrored_versions(versions: Iterable[tuple[str, int]]) -> list[MirroredAppVersion]:
    """As commands and records have them."""
    return [MirroredAppVersion(transactional_id=name, app_version=version) for name, version in versions]
