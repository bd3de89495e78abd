"""Questions of a broker to the quorum's leader about application versions, and the answers: session messages, see
`quorum_session`.

Many answers come on several pages.
"""

from __future__ import annotations

from ..wire.schema import Message, array, boolean, data, int32, int64, string


@data()
class AskAppVersions(Message):
    """Question of a broker: which application versions did transactional ids have at a cut, a commit index of the
    transactions?"""

    question: int = int64(about="Number of the question.")
    listing: int = int64(
        about="Number of the question that began this listing; the first question names itself."
    )
    position: int = int32(about="Position at which the last page ended; 0 at first.")
    cut: int = int64(about="Cut: a commit index of the cluster.")
    told_offset: int = int64(
        default=-1,
        about="Metadata offset up to which the broker already knows all changes; -1: it knows nothing.",
    )


@data()
class AppVersionTold(Message):
    """The application version of a transactional id at the cut."""

    transactional_id: str = string(about="Transactional id.")
    app_version: int = int64(
        default=-1, about="Version of the last commit up to the cut that named one; -1 without any."
    )


@data()
class AppVersionsTold(Message):
    """Answer of the quorum: one page of the application versions that changed, or of all."""

    question: int = int64(about="Number of the question.")
    position: int = int32(
        default=-1, about="Position at which the next page begins; -1: this is the last page."
    )
    began_elsewhere: bool = boolean(
        about="Whether this node does not know the listing, so that the broker has to begin again."
    )
    is_unknown: bool = boolean(
        about="Whether this node does not know the versions at this cut, so that the broker has to ask for a newer "
        "one."
    )
    is_whole: bool = boolean(
        about="Whether an id that is on no page has no version; otherwise its version has not changed."
    )
    next_offset: int = int64(default=-1, about="Value of `told_offset` in the next question.")
    versions: list[AppVersionTold] = array(AppVersionTold, about="Application versions at the cut.")
