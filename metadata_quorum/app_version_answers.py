"""The active leader's answers to brokers about application versions, in pages of `ANSWER_BYTES_MAX`. Pure.

An application version is the number that a transaction's owner commits along with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from ..protocol.messages.app_version_questions import AppVersionsTold, AppVersionTold, AskAppVersions
from .state.app_version_history import AppVersionHistory, VersionsAtCut
from .transaction_questions import ANSWER_BYTES_MAX, CHARACTER_BYTES_MAX, LISTED_MAX

_FIXED_BYTES = 16


@dataclass(slots=True)
class _Listing:
    number: int
    found: VersionsAtCut
    versions: list[tuple[str, int]]


class AppVersionAnswers:
    """The pages of application versions that this node sends to brokers, with the unfinished listing of each broker."""

    def __init__(self) -> None:
        self._listings: dict[int, _Listing] = {}

    def forget(self, broker_id: int) -> None:
        """Drop the unfinished listing of application versions of a broker whose session has ended."""
        self._listings.pop(broker_id, None)

    def answer(
        self, broker_id: int, question: AskAppVersions, history: AppVersionHistory, metadata_offset: int
    ) -> AppVersionsTold:
        """Return the page of application versions that the question asks for. A new listing takes the versions at the
        question's cut from `history`; `metadata_offset` is the current one."""
        if question.listing == question.question:
            found = history.at_cut(question.cut, question.told_offset, metadata_offset)
            if found is None:
                return AppVersionsTold(question=question.question, is_unknown=True)
            self._listings[broker_id] = _Listing(question.listing, found, list(found.versions.items()))
        listing = self._listings.get(broker_id)
        if listing is None or listing.number != question.listing:
            return AppVersionsTold(question=question.question, began_elsewhere=True)
        page = _page(question, listing)
        if page.position < 0:
            del self._listings[broker_id]
        return page


def _page(question: AskAppVersions, listing: _Listing) -> AppVersionsTold:
    first = max(question.position, 0)
    page = AppVersionsTold(
        question=question.question, is_whole=listing.found.is_whole, next_offset=listing.found.next_offset
    )
    room = ANSWER_BYTES_MAX
    for name, version in islice(listing.versions, first, first + LISTED_MAX):
        room -= _FIXED_BYTES + CHARACTER_BYTES_MAX * len(name)
        if page.versions and room < 0:
            break
        page.versions.append(AppVersionTold(transactional_id=name, app_version=version))
    end = first + len(page.versions)
    page.position = -1 if end >= len(listing.versions) else end
    return page
