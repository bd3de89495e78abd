"""What a broker asks the quorum's leader about transactions, and what it is told: session messages, see
`quorum_session`.

A broker knows the transactions that concern it; the quorum knows all. Only an active leader answers, with the number of
the question; whoever leads no more is silent. No answer grows with the number of transactions: where there is more to
tell, the broker goes on asking.
"""

from __future__ import annotations

from ..schema import Message, array, boolean, data, int8, int16, int32, int64, string
from .transaction_records import WriterPartitions

FOREVER_MS = 2**63 - 1
"""A time that every transaction began before."""


@data()
class AskCut(Message):
    """Broker: how far are these partitions cut, whatever is open?"""

    question: int = int64(about="Its number.")
    topics: list[WriterPartitions] = array(
        WriterPartitions, about="Partitions that matter; none: all there are."
    )


@data()
class CutTold(Message):
    """Quorum: in none of these partitions a marker is missing of a transaction that was decided up to here."""

    question: int = int64(about="As asked.")
    commit_index: int = int64(default=-1, about="The largest such commit index; -1 if nothing was decided.")
    metadata_offset: int = int64(
        default=-1, about="Up to which metadata records tell of these markers, and who led their partitions."
    )


@data()
class AskTransactions(Message):
    """Broker: tell all about the transactions of these ids."""

    question: int = int64(about="Its number.")
    transactional_ids: list[str] = array(string, about="Whose.")
    number: int = int32(
        default=-1, about="Of the first one's transaction, if some of its writers are known already."
    )
    writers_known: int = int32(about="How many; only the others are told.")


@data()
class WriterTold(Message):
    """Who writes in a transaction, and where its marker is missing."""

    producer_id: int = int64(about="The writer's.")
    producer_epoch: int = int16(about="The writer's.")
    topics: list[WriterPartitions] = array(WriterPartitions, about="Partitions without a marker yet.")


@data()
class TransactionTold(Message):
    """A transactional id, and its newest transaction."""

    transactional_id: str = string(about="As asked.")
    producer_id: int = int64(default=-1, about="Of the owner.")
    producer_epoch: int = int16(default=-1, about="Of the owner.")
    phase: int = int8(about="A Phase.")
    timeout_ms: int = int32(about="How long a transaction may stay open.")
    started_ms: int = int64(
        default=-1, about="When the newest transaction began, in ms since 1970; -1 never."
    )
    number: int = int32(about="Of the newest transaction, 0 before the first.")
    app_version: int = int64(default=-1, about="Of the last commit that named one.")
    commit_index: int = int64(default=-1, about="Of the newest transaction, once it is decided.")
    writers: list[WriterTold] = array(WriterTold, about="In the order in which they came.")
    first_writer: int = int32(about="How many writers came before those told here.")
    more_writers: bool = boolean(about="Whether others came after them.")


@data()
class TransactionsTold(Message):
    """Quorum: the transactions of the first ids that were asked about; those that are not known are left out."""

    question: int = int64(about="As asked.")
    answered: int = int32(about="How many ids this answers in full; the others are to be asked about again.")
    transactions: list[TransactionTold] = array(
        TransactionTold, about="Of these and, as far as there was room, of the next."
    )


@data()
class AskTransactionIds(Message):
    """Broker: which transactional ids are there?"""

    question: int = int64(about="Its number.")
    listing: int = int64(about="Number of the question that began this listing: of this one, at first.")
    position: int = int32(about="Where the last page ended; 0 at first.")
    phases: list[int] = array(int8, about="Only those in one of these; none: all.")
    producer_ids: list[int] = array(
        int64, about="Only those that these belong to, as owners' or other writers'; none: all."
    )
    started_before_ms: int = int64(
        default=FOREVER_MS,
        about="Only those whose newest transaction began earlier, or that never began one.",
    )


@data()
class TransactionIdTold(Message):
    """One transactional id."""

    transactional_id: str = string(about="As its client named it.")
    producer_id: int = int64(default=-1, about="That it has now; the one asked for, if some were.")
    phase: int = int8(about="A Phase.")


@data()
class TransactionIdsTold(Message):
    """Quorum: one page of them. An id that was there when the listing began, and still is, is on one of the pages."""

    question: int = int64(about="As asked.")
    position: int = int32(default=-1, about="Where to go on; -1: that was all.")
    began_elsewhere: bool = boolean(about="This node knows nothing of the listing: begin again.")
    transactions: list[TransactionIdTold] = array(TransactionIdTold, about="Those that pass.")


TransactionQuestion = AskCut | AskTransactions | AskTransactionIds
TransactionAnswer = CutTold | TransactionsTold | TransactionIdsTold
