"""Commands about transactions and their results."""

from __future__ import annotations

from ..schema import Message, array, boolean, data, int16, int32, int64, nested, string, uuid
from .command import Command, CommandResult, PlainResult
from .transaction_records import WriterPartitions


@data()
class ClientOrigin(Message):
    """On which of its broker's connections a client's request came, and where the broker's image stood at the latest
    when that connection was made: so the quorum can tell a request that was delayed on an old connection from one of a
    client that came back (KAFKA-17754)."""

    broker_id: int = int32(default=-1, about="Which broker it speaks to.")
    broker_epoch: int = int64(default=-1, about="That broker's registration.")
    connection: int = int64(
        default=-1, about="By number, which rises; -1: not asked by a client's own request."
    )
    birth: int = int64(default=-1, about="Metadata offset.")
    now_ms: int = int64(default=-1, about="The clock of that broker.")

    @property
    def is_client(self) -> bool:
        """Whether a client's own request has led to the command."""
        return self.connection >= 0


@data()
class InitTransactionalIdResult(CommandResult):
    """The producer id and epoch to use."""

    error_code: int = int16(about="0 for success.")
    error_message: str = string(about="For people.")
    producer_id: int = int64(default=-1, about="-1 if refused.")
    producer_epoch: int = int16(default=-1, about="-1 if refused.")
    app_version: int = int64(default=-1, about="Of the last commit that named one.")


@data()
class InitTransactionalId(Command[InitTransactionalIdResult]):
    """A producer begins to use a transactional id, or goes on after an error (KIP-360)."""

    transactional_id: str = string(about="Not empty.")
    timeout_ms: int = int32(about="How long its transactions may stay open.")
    producer_id: int = int64(default=-1, about="What it has, -1 if it is new.")
    producer_epoch: int = int16(default=-1, about="Likewise.")
    origin: ClientOrigin = nested(ClientOrigin, about="Who asks.")
    recovers: bool = boolean(
        "0+",
        tag=0,
        about="Whether the client can ask for the next epoch of a producer id that it has (KIP-360).",
    )


@data()
class AddToTransactionResult(CommandResult):
    """The number of the transaction that they are part of."""

    error_code: int = int16(about="0 for success.")
    error_message: str = string(about="For people.")
    number: int = int32(default=-1, about="-1 if refused.")


@data()
class AddToTransaction(Command[AddToTransactionResult]):
    """A writer is about to write to these partitions; the first begins the transaction."""

    transactional_id: str = string(about="Whose transaction.")
    producer_id: int = int64(default=-1, about="The writer's.")
    producer_epoch: int = int16(default=-1, about="The writer's.")
    topics: list[WriterPartitions] = array(WriterPartitions, about="To which it will write.")
    origin: ClientOrigin = nested(ClientOrigin, about="Who asks.")


@data()
class ChosenWriter(Message):
    """A writer whose records shall count."""

    producer_id: int = int64(about="As it joined.")
    producer_epoch: int = int16(about="As it joined.")


@data()
class EndTransactionResult(CommandResult):
    """Decided. It is over for readers once the transaction of this number is complete."""

    error_code: int = int16(about="0 for success.")
    error_message: str = string(about="For people.")
    producer_id: int = int64(default=-1, about="To go on with.")
    producer_epoch: int = int16(default=-1, about="To go on with.")
    number: int = int32(default=-1, about="Of the transaction.")
    was_committed: bool = boolean(
        about="The application version had been committed before: this transaction was aborted instead."
    )
    commit_index: int = int64(default=-1, about="Of the decision; -1 if refused.")


@data()
class EndTransaction(Command[EndTransactionResult]):
    """Commit or abort. Decided at once for all partitions."""

    transactional_id: str = string(about="Which.")
    producer_id: int = int64(default=-1, about="The owner's.")
    producer_epoch: int = int16(default=-1, about="The owner's.")
    commits: bool = boolean(about="Or aborts.")
    bumps_epoch: bool = boolean(about="Whether the client takes up the next epoch (KIP-890).")
    writers: list[ChosenWriter] = array(
        ChosenWriter, about="To commit beside the owner; all others are aborted."
    )
    number: int = int32(default=-1, about="Which transaction is meant, -1: the newest.")
    app_version: int = int64(
        default=-1, about="To remember with the commit, above the last one; -1 for none."
    )
    origin: ClientOrigin = nested(ClientOrigin, about="Who asks.")


@data()
class FindOrBeginResult(CommandResult):
    """What its owner would have."""

    error_code: int = int16(about="0 for success.")
    error_message: str = string(about="For people.")
    producer_id: int = int64(default=-1, about="-1 if refused, or committed before.")
    producer_epoch: int = int16(default=-1, about="Likewise.")
    number: int = int32(default=-1, about="Of the transaction; likewise.")
    was_committed: bool = boolean(
        about="The application version had been committed before: nothing was begun."
    )


@data()
class FindOrBegin(Command[FindOrBeginResult]):
    """Somebody of many who are to write in one transaction, none of whom owns it: the first one begins it."""

    transactional_id: str = string(about="Not empty.")
    app_version: int = int64(
        default=-1, about="Nothing begins if this, or a later one, was committed; -1: none."
    )
    timeout_ms: int = int32(about="How long it may stay open after it was last found.")
    now_ms: int = int64(default=-1, about="The clock of the broker that asks.")


@data()
class JoinTransactionResult(CommandResult):
    """What the writer writes under; nobody else has it in this transaction."""

    error_code: int = int16(about="0 for success.")
    error_message: str = string(about="For people.")
    producer_id: int = int64(default=-1, about="-1 if refused.")
    producer_epoch: int = int16(default=-1, about="-1 if refused.")


@data()
class JoinTransaction(Command[JoinTransactionResult]):
    """Another process wants to write in an open transaction."""

    transactional_id: str = string(about="Which.")
    producer_id: int = int64(default=-1, about="The owner's, as its token has it.")
    producer_epoch: int = int16(default=-1, about="The owner's, as its token has it.")
    number: int = int32(default=-1, about="Of the transaction, as its token has it.")


@data()
class WrittenMarker(Message):
    """The marker of one writer."""

    producer_id: int = int64(about="The writer's.")
    number: int = int32(about="Of the transaction.")


@data()
class WrittenMarkers(Message):
    """Markers of one partition that are below its high watermark."""

    topic_id: bytes = uuid(about="Topic.")
    partition: int = int32(about="Partition index.")
    leader_epoch: int = int32(about="In which they were written.")
    writers: list[WrittenMarker] = array(WrittenMarker, about="Whose.")


@data()
class ReportMarkers(Command[PlainResult]):
    """A leader has written markers."""

    broker_id: int = int32(about="Who leads.")
    broker_epoch: int = int64(about="Its registration.")
    partitions: list[WrittenMarkers] = array(WrittenMarkers, about="All there are.")


@data()
class OpenTransaction(Message):
    """One transaction of a transactional id."""

    transactional_id: str = string(about="Whose.")
    number: int = int32(about="Which.")


@data()
class ExpireTransactions(Command[PlainResult]):
    """The quorum's leader: these have been open for longer than they may."""

    transactions: list[OpenTransaction] = array(OpenTransaction, about="As they were when the time was over.")


@data()
class ForgetTransactionalIds(Command[PlainResult]):
    """The quorum's leader: nobody has used these for long."""

    transactions: list[OpenTransaction] = array(OpenTransaction, about="With their last transaction.")
    unused_since_ms: int = int64(
        default=-1, about="Those whose client has spoken later, by its broker's clock, are kept."
    )


@data()
class AbortTransaction(Command[PlainResult]):
    """An operator: end this transaction, whoever its producer is; that one is fenced."""

    transactional_id: str = string(about="Which.")
    number: int = int32(default=-1, about="Which of its transactions, -1: the newest.")


@data()
class DeleteTransactionalId(Command[PlainResult]):
    """An operator: forget this transactional id, and the application version that it may have."""

    transactional_id: str = string(about="Which.")


@data()
class VerifyTransaction(Command[PlainResult]):
    """Changes nothing: whoever gets the answer knows what had been decided when it was asked for."""

    broker_id: int = int32(about="Who asks.")
    broker_epoch: int = int64(about="Its registration.")
