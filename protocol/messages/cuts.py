"""FindCut (20003), ListCutOffsets (20004) and ListAppVersions (20011): what was when a certain transaction was decided.

APIs of Ottla's own, under keys that Kafka does not use. The markers of a partition stand in the order in which the
quorum decided, and each names its commit index. So a commit index X is a cut through all partitions at once: below it
lie the markers of all transactions with an index up to X, and of no other.
"""

from __future__ import annotations

from ..schema import (
    Message,
    Request,
    array,
    boolean,
    data,
    int16,
    int32,
    int64,
    request,
    response,
    string,
    uuid,
)


@data()
class CutTopic(Message):
    """One of the `topics` of FindCutRequest and ListCutOffsetsRequest."""

    topic_id: bytes = uuid(about="Topic.")
    partitions: list[int] = array(int32, about="Partitions.")


@response(20003, "0", flexible="0+")
class FindCutResponse(Message):
    """Answer to FindCutRequest."""

    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(
        default=None, nullable="0+", about="Explanation for people; null without one."
    )
    cut: int = int64(default=-1, about="A commit index; -1 if no transaction was ever decided.")
    metadata_offset: int = int64(
        default=-1, about="How far the quorum's metadata were when this was true; to be told to leaders."
    )


@request(20003, "0", flexible="0+", response=FindCutResponse)
class FindCutRequest(Request[FindCutResponse]):
    """The newest commit index such that every transaction decided up to there has all the markers that it needs in
    these partitions, below the high watermark. Any broker answers.
    """

    topics: list[CutTopic] = array(CutTopic, about="Partitions to be read together; none: all there are.")


@data()
class CutOffset(Message):
    """One of the `partitions` of CutOffsetsTopic."""

    partition_index: int = int32(about="Partition.")
    error_code: int = int16(about="Error code, 0 for success.")
    offset: int = int64(
        default=-1,
        about="Of the first marker of a transaction that was decided after the cut, else the high watermark.",
    )
    open_from: int = int64(
        "0+",
        tag=0,
        default=-1,
        about="Where the first transaction begins that is open at that offset; the offset itself if none is.",
    )
    least_offset: int = int64(
        "0+",
        tag=1,
        default=-1,
        about="From here to that offset no transaction ends: any offset between cuts the partition as well.",
    )


@data()
class CutOffsetsTopic(Message):
    """One of the `topics` of ListCutOffsetsResponse."""

    topic_id: bytes = uuid(about="Topic.")
    partitions: list[CutOffset] = array(
        CutOffset, about="Partitions, in the order in which they were asked for."
    )


@response(20004, "0", flexible="0+")
class ListCutOffsetsResponse(Message):
    """Answer to ListCutOffsetsRequest."""

    topics: list[CutOffsetsTopic] = array(CutOffsetsTopic, about="Topics, in the order of the request.")


@request(20004, "0", flexible="0+", response=ListCutOffsetsResponse)
class ListCutOffsetsRequest(Request[ListCutOffsetsResponse]):
    """Where partitions are cut. Only the leader of a partition answers for it."""

    cut: int = int64(default=-1, about="A commit index, as FindCut answers it.")
    metadata_offset: int = int64(
        default=-1,
        about="As FindCut answers it: a leader that has heard of less may have been replaced. -1: it asks the quorum.",
    )
    topics: list[CutTopic] = array(CutTopic, about="Partitions concerned.")


@data()
class AppVersion(Message):
    """One of the `versions` of ListAppVersionsResponse."""

    transactional_id: str = string(about="Whose.")
    app_version: int = int64(
        default=-1, about="Of the last commit up to the cut that named one; -1 if it has none any more."
    )


@response(20011, "0", flexible="0+")
class ListAppVersionsResponse(Message):
    """Answer to ListAppVersionsRequest."""

    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(
        default=None, nullable="0+", about="Explanation for people; null without one."
    )
    is_whole: bool = boolean(
        about="Whether ids that are not told have no version; else theirs are as they were."
    )
    next_offset: int = int64(default=-1, about="The told offset of the next request.")
    versions: list[AppVersion] = array(AppVersion, about="In no order.")


@request(20011, "0", flexible="0+", response=ListAppVersionsResponse)
class ListAppVersionsRequest(Request[ListAppVersionsResponse]):
    """The application versions that transactional ids had at a cut. Any broker answers. OFFSET_NOT_AVAILABLE: this cut
    lies too far back, so that a newer one is to be found first.
    """

    cut: int = int64(default=-1, about="A commit index, as FindCut answers it.")
    told_offset: int = int64(
        default=-1, about="An earlier answer's next offset: only what has changed since is told. -1: all."
    )
