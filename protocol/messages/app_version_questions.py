"""What a broker asks the quorum's leader about application versions, and what it is told: session messages, see
`quorum_session`. Many come on several pages.
"""

from __future__ import annotations

from ..schema import Message, array, boolean, data, int32, int64, string


@data()
class AskAppVersions(Message):
    """Broker: which application versions had transactional ids at a cut?"""

    question: int = int64(about="Its number.")
    listing: int = int64(about="Number of the question that began this listing: of this one, at first.")
    position: int = int32(about="Where the last page ended; 0 at first.")
    cut: int = int64(about="A commit index that is a cut.")
    told_offset: int = int64(
        default=-1, about="What has changed up to this metadata offset is known already; -1: nothing is."
    )


@data()
class AppVersionTold(Message):
    """The application version of a transactional id."""

    transactional_id: str = string(about="Whose.")
    app_version: int = int64(
        default=-1, about="Of the last commit up to the cut that named one; -1 without any."
    )


@data()
class AppVersionsTold(Message):
    """Quorum: one page of them, of what has changed or of all there are."""

    question: int = int64(about="As asked.")
    position: int = int32(default=-1, about="Where to go on; -1: that was all.")
    began_elsewhere: bool = boolean(about="This node knows nothing of the listing: begin again.")
    is_unknown: bool = boolean(about="This node does not know what held at this cut: ask about a newer one.")
    is_whole: bool = boolean(about="Whoever is on no page has no version; else it is as it was.")
    next_offset: int = int64(default=-1, about="What the next question has as its told offset.")
    versions: list[AppVersionTold] = array(AppVersionTold, about="As they were at the cut.")
