"""FindCut (20003), ListCutOffsets (20004) and ListAppVersions (20011): the state of the log at the decision of a
certain transaction.

APIs of Ottla's own, under keys that Kafka does not use. The markers of a partition are in the order in which the quorum
decided, and each marker names its commit index. So a commit index X is a cut through all partitions at once. Below the
cut lie the markers of all transactions with an index up to X, and of no other transaction.
"""

from __future__ import annotations

from ..wire.schema import (
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
    """Partitions of one topic that a cut, a commit index of the transactions, is to divide."""

    topic_id: bytes = uuid(about="Id of the topic.")
    partitions: list[int] = array(int32, about="Partition indexes.")


@response(20003, "0", flexible="0+")
class FindCutResponse(Message):
    """Answer to FindCutRequest."""

    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(
        default=None, nullable="0+", about="Explanation for people; null without one."
    )
    cut: int = int64(default=-1, about="Commit index of the cut; -1 if no transaction was ever decided.")
    metadata_offset: int = int64(
        default=-1,
        about="Metadata offset of the quorum at which the cut was valid; ListCutOffsets passes it to leaders.",
    )


@request(20003, "0", flexible="0+", response=FindCutResponse)
class FindCutRequest(Request[FindCutResponse]):
    """Request for the newest commit index at which these partitions can be cut.

    Every transaction decided up to that index has all the markers that it needs in these partitions, below the high
    watermark. Any broker answers.
    """

    topics: list[CutTopic] = array(
        CutTopic, about="Partitions that will be read together; empty: all partitions of the cluster."
    )


@data()
class CutOffset(Message):
    """The offset at which a cut divides one partition: below it are the markers of all transactions up to the cut's
    commit index, and of no other."""

    partition_index: int = int32(about="Partition index.")
    error_code: int = int16(about="Error code, 0 for success.")
    offset: int = int64(
        default=-1,
        about="Offset of the first marker of a transaction that was decided after the cut; the high watermark if "
        "there is no such marker.",
    )
    open_from: int = int64(
        "0+",
        tag=0,
        default=-1,
        about="First offset of the earliest transaction that is open at `offset`; `offset` itself if none is open.",
    )
    least_offset: int = int64(
        "0+",
        tag=1,
        default=-1,
        about="Lower end of the range up to `offset` in which no transaction ends: any offset in it is an equally "
        "valid cut.",
    )


@data()
class CutOffsetsTopic(Message):
    """Offsets at which a cut divides the partitions of one topic."""

    topic_id: bytes = uuid(about="Id of the topic.")
    partitions: list[CutOffset] = array(CutOffset, about="Partitions, in the order of the request.")


@response(20004, "0", flexible="0+")
class ListCutOffsetsResponse(Message):
    """Answer to ListCutOffsetsRequest."""

    topics: list[CutOffsetsTopic] = array(CutOffsetsTopic, about="Topics, in the order of the request.")


@request(20004, "0", flexible="0+", response=ListCutOffsetsResponse)
class ListCutOffsetsRequest(Request[ListCutOffsetsResponse]):
    """Request for the offsets at which a cut, given as a commit index, divides partitions. Only the leader of a
    partition answers for it."""

    cut: int = int64(default=-1, about="Commit index of the cut, from FindCut.")
    metadata_offset: int = int64(
        default=-1,
        about="Metadata offset from FindCut. A leader whose metadata ends before it may have been replaced. -1: the "
        "leader asks the quorum.",
    )
    topics: list[CutTopic] = array(CutTopic, about="Partitions to divide.")


@data()
class AppVersion(Message):
    """The application version of a transactional id at the cut."""

    transactional_id: str = string(about="Transactional id.")
    app_version: int = int64(
        default=-1,
        about="Version of the last commit up to the cut that named one; -1 if the id has none any more.",
    )


@response(20011, "0", flexible="0+")
class ListAppVersionsResponse(Message):
    """Answer to ListAppVersionsRequest."""

    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(
        default=None, nullable="0+", about="Explanation for people; null without one."
    )
    is_whole: bool = boolean(
        about="Whether ids that are not in the answer have no version; otherwise their versions have not changed."
    )
    next_offset: int = int64(default=-1, about="Value of `told_offset` in the next request.")
    versions: list[AppVersion] = array(AppVersion, about="Application versions, in no particular order.")


@request(20011, "0", flexible="0+", response=ListAppVersionsResponse)
class ListAppVersionsRequest(Request[ListAppVersionsResponse]):
    """Request for the application versions that transactional ids had at a cut, given as a commit index.

    Any broker answers. OFFSET_NOT_AVAILABLE: this cut lies too far back, so the client has to find a newer one first.
    """

    cut: int = int64(default=-1, about="Commit index of the cut, from FindCut.")
    told_offset: int = int64(
        default=-1,
        about="`next_offset` of an earlier answer: only versions that changed since are returned; -1: all "
        "versions.",
    )
