"""Questions of a broker to the quorum's leader about transactions, and the answers: session messages, see
`quorum_session`.

A broker knows the transactions that concern it; the quorum knows all. Only an active leader answers, with the number of
the question; a node that leads no more stays silent. No answer grows with the number of transactions: the broker asks
again for the rest.
"""

from __future__ import annotations

from ..wire.schema import Message, array, boolean, data, int8, int16, int32, int64, string
from .transaction_records import WriterPartitions

FOREVER_MS = 2**63 - 1
"""A time before which every transaction began."""


@data()
class AskCut(Message):
    """Question of a broker: up to which commit index do these partitions have the markers of all decided transactions,
    whatever transactions are open?"""

    question: int = int64(about="Number of the question.")
    topics: list[WriterPartitions] = array(
        WriterPartitions, about="Partitions that matter, by topic; empty: all partitions of the cluster."
    )


@data()
class CutTold(Message):
    """Answer of the quorum: no marker of a transaction decided up to this commit index is missing in these
    partitions."""

    question: int = int64(about="Number of the question.")
    commit_index: int = int64(default=-1, about="Largest such commit index; -1 if nothing was decided.")
    metadata_offset: int = int64(
        default=-1,
        about="Metadata offset up to which records contain these markers, and the leaders of their partitions.",
    )


@data()
class AskTransactions(Message):
    """Question of a broker for the full description of the newest transactions of these transactional ids."""

    question: int = int64(about="Number of the question.")
    transactional_ids: list[str] = array(string, about="Transactional ids.")
    number: int = int32(
        default=-1, about="Number of the first id's transaction, if some of its writers are known already."
    )
    writers_known: int = int32(
        about="Number of writers that are known already; the answer contains only the others."
    )


@data()
class WriterTold(Message):
    """A writer of a transaction, and the partitions in which its marker is missing."""

    producer_id: int = int64(about="Producer id of the writer.")
    producer_epoch: int = int16(about="Producer epoch of the writer.")
    topics: list[WriterPartitions] = array(WriterPartitions, about="Partitions without a marker yet.")


@data()
class TransactionTold(Message):
    """A transactional id and its newest transaction."""

    transactional_id: str = string(about="Transactional id.")
    producer_id: int = int64(default=-1, about="Producer id of the owner.")
    producer_epoch: int = int16(default=-1, about="Producer epoch of the owner.")
    phase: int = int8(about="Phase of the newest transaction, a Phase.")
    timeout_ms: int = int32(about="Time that a transaction may stay open, in ms.")
    started_ms: int = int64(
        default=-1, about="Time at which the newest transaction began, in ms since 1970; -1 never."
    )
    number: int = int32(about="Number of the newest transaction; 0 before the first.")
    app_version: int = int64(
        default=-1, about="Application version of the last commit that named one; -1 for none."
    )
    commit_index: int = int64(
        default=-1, about="Commit index of the newest transaction; -1 until it is decided."
    )
    writers: list[WriterTold] = array(WriterTold, about="Writers, in the order in which they came.")
    first_writer: int = int32(about="Number of writers that came before the writers in this answer.")
    more_writers: bool = boolean(about="Whether more writers came after the writers in this answer.")


@data()
class TransactionsTold(Message):
    """Answer of the quorum: the transactions of the first ids that were asked about. Unknown ids are left out."""

    question: int = int64(about="Number of the question.")
    answered: int = int32(
        about="Number of ids that this answers in full; the broker has to ask again about the others."
    )
    transactions: list[TransactionTold] = array(
        TransactionTold, about="Transactions of these ids and, if there was room, a part of the next one."
    )


@data()
class AskTransactionIds(Message):
    """Question of a broker for the transactional ids that exist."""

    question: int = int64(about="Number of the question.")
    listing: int = int64(
        about="Number of the question that began this listing; the first question names itself."
    )
    position: int = int32(about="Position at which the last page ended; 0 at first.")
    phases: list[int] = array(int8, about="Phases that are wanted, each a Phase; empty: all.")
    producer_ids: list[int] = array(
        int64,
        about="Producer ids, of owners or other writers, whose transactional ids are wanted; empty: all.",
    )
    started_before_ms: int = int64(
        default=FOREVER_MS,
        about="Time in ms since 1970 before which the newest transaction must have begun; ids without a transaction "
        "pass, too.",
    )


@data()
class TransactionIdTold(Message):
    """A transactional id with its producer id and phase."""

    transactional_id: str = string(about="Transactional id, as its client named it.")
    producer_id: int = int64(
        default=-1, about="Producer id of the transactional id now; the one that was asked for, if some were."
    )
    phase: int = int8(about="Phase of the newest transaction, a Phase.")


@data()
class TransactionIdsTold(Message):
    """Answer of the quorum: one page of transactional ids.

    An id that existed when the listing began, and still exists, is on one of the pages.
    """

    question: int = int64(about="Number of the question.")
    position: int = int32(
        default=-1, about="Position at which the next page begins; -1: this is the last page."
    )
    began_elsewhere: bool = boolean(
        about="Whether this node does not know the listing, so that the broker has to begin again."
    )
    transactions: list[TransactionIdTold] = array(
        TransactionIdTold, about="Transactional ids that pass the filters."
    )


TransactionQuestion = AskCut | AskTransactions | AskTransactionIds
TransactionAnswer = CutTold | TransactionsTold | TransactionIdsTold
