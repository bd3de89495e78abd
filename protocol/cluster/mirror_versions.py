"""Application versions that transactional ids of a mirror's source had at its cuts: a part of the image. Pure.

A promotion at a cut assigns them to this cluster's transactional ids. So a job learns what was committed up to the cut,
and neither writes it again nor leaves anything out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from ..messages.mirror_records import MirroredAppVersion, MirrorVersionsRecord

NO_VERSION: Final = -1
NOTHING_TOLD: Final = -1


@dataclass(slots=True)
class MirrorVersions:
    """The application versions of the transactional ids of one mirror's source, as of the cuts of its rounds."""

    told_offset: int = NOTHING_TOLD
    """Metadata offset of the source up to which it has reported changes."""
    by_id: dict[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    """Versions by transactional id: pairs of a cut and the version from that cut on; cuts rise."""
    _changing: set[str] = field(default_factory=set)
    """Transactional ids with several pairs."""

    def apply(self, record: MirrorVersionsRecord, needed_from: int) -> None:
        """Apply one metadata record with the source's versions at a cut. No cut before `needed_from` will be asked for
        any more."""
        told = {version.transactional_id: version.app_version for version in record.versions}
        if record.is_whole:
            told = dict.fromkeys(self.by_id, NO_VERSION) | told
        for name, version in told.items():
            self._set(name, record.cut, version, needed_from)
        self.told_offset = record.next_offset

    def _set(self, name: str, cut: int, version: int, needed_from: int) -> None:
        known = [known_version for known_version in self.by_id.get(name, ()) if known_version[0] < cut]
        if (known[-1][1] if known else NO_VERSION) != version:
            known.append((cut, version))
        self._keep(name, known, needed_from)

    def trim(self, needed_from: int | None) -> None:
        """Forget versions that only cuts before the commit index `needed_from` need. With None only the newest version
        of each id is kept."""
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
        """Return by transactional id the application versions at the cut, a commit index of the source."""
        found = {}
        for name, known in self.by_id.items():
            version = next((version for since, version in reversed(known) if since <= cut), NO_VERSION)
            if version != NO_VERSION:
                found[name] = version
        return found

    def copy(self) -> MirrorVersions:
        """Return a snapshot that remains unchanged while this object changes."""
        return MirrorVersions(self.told_offset, dict(self.by_id), set(self._changing))

    def records(self, mirror: str) -> Iterator[MirrorVersionsRecord]:
        """Yield the records that rebuild this object, in a fixed order."""
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
        """Return a description of an inconsistency; empty if there is none."""
        for name, known in self.by_id.items():
            cuts = [cut for cut, _ in known]
            if not cuts or cuts != sorted(set(cuts)) or (len(cuts) > 1) != (name in self._changing):
                return f"the versions of {name!r} are {known}"
        return ""


def mirrored_versions(versions: Iterable[tuple[str, int]]) -> list[MirroredAppVersion]:
    """Return application versions in the form that commands and metadata records have."""
    return [MirroredAppVersion(transactional_id=name, app_version=version) for name, version in versions]
