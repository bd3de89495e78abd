"""Promises about records: an acknowledged record stays, once, at its acknowledged offset, in order."""

from __future__ import annotations

from collections.abc import Iterator

from ..operations import ALL_IN_SYNC, Outcome, Send
from .base import Invariant
from .facts import Facts, HighestBefore, Place, named, polled, short, told

SEQUENCE_ERRORS = frozenset({"OUT_OF_ORDER_SEQUENCE_NUMBER", "UNKNOWN_PRODUCER_ID"})
PRODUCER_EPOCH_MAX = 32767


def _passed_over(facts: Facts, send: Send) -> bool:
    """Return whether no client read the record, although a client read its offset or a higher one."""
    place = (send.topic, send.partition)
    return (
        send.offset is not None
        and send.value not in facts.ever_read.get(place, {})
        and send.offset <= facts.highest_read.get(place, -1)
    )


class LostWrite(Invariant):
    """Readers get every record acknowledged with acks=all: no client reads past a record that no client ever gets.

    This holds for every acknowledging leader (also a zombie), and for any replicas that died or lost their page cache.
    Only a declared loss is an excuse.
    """

    scenarios = (1, 13, 15, 16, 18, 19, 20, 21, 22, 23)

    def violations(self, facts: Facts) -> Iterator[str]:
        for send in facts.acknowledged:
            if facts.must_be_final(send) and _passed_over(facts, send):
                highest = facts.highest_read[send.topic, send.partition]
                yield f"{told(send)}; read by nobody, though offset {highest} was read"


class UnseenAfterHeal(Invariant):
    """A read from the earliest offset after all faults shows every record that was acknowledged with acks=all, even if
    no client read it before.
    """

    scenarios = (2, 15, 21, 22)

    def violations(self, facts: Facts) -> Iterator[str]:
        final = {place: set(values.values()) for place, values in facts.final_values.items()}
        for send in facts.acknowledged:
            place = (send.topic, send.partition)
            if facts.must_be_final(send) and send.value not in final[place] and not _passed_over(facts, send):
                last = max(facts.final_values[place], default=None)
                yield f"{told(send)}; not in the final read, whose last offset is {last}"


class InconsistentOffset(Invariant):
    """An offset holds one record for ever: all acknowledgements and reads of an offset name the same record."""

    scenarios = (3, 13, 14, 15, 16)

    def violations(self, facts: Facts) -> Iterator[str]:
        known: dict[Place, dict[int, bytes]] = {}
        excuse = facts.losses.excuse
        for send in facts.acknowledged:
            place = (send.topic, send.partition)
            if send.offset is not None and not excuse(place, send.offset, send.invoked_s):
                value = known.setdefault(place, {}).setdefault(send.offset, send.value)
                if value != send.value:
                    yield f"{told(send)}; {short(value)} was acknowledged there, too"
        for poll in facts.history.polls:
            place = (poll.topic, poll.partition)
            value = known.setdefault(place, {}).get(poll.offset, poll.value)
            if value != poll.value and not excuse(place, poll.offset, poll.at_s):
                yield f"{polled(poll)}; elsewhere it is {short(value)}"
            elif poll.offset not in known[place] and not excuse(place, poll.offset, poll.at_s):
                known[place][poll.offset] = poll.value
        for read in facts.history.final_reads:
            values = known.setdefault((read.topic, read.partition), {})
            for offset, final in read.records:
                value = values.setdefault(offset, final)
                if value != final:
                    yield (
                        f"the final read of {read.topic}-{read.partition} shows {short(final)} at offset {offset}; "
                        f"it was {short(value)} before"
                    )


class AcknowledgedElsewhere(Invariant):
    """The offset in an acknowledgement with acks=all is the record's offset, even if the acknowledgement answers a
    retry and another leader appended the first attempt.
    """

    scenarios = (27,)

    def violations(self, facts: Facts) -> Iterator[str]:
        for send in facts.acknowledged:
            offset = send.offset
            if offset is None:
                continue
            place = (send.topic, send.partition)
            found = facts.read_at.get(place, {}).get(send.value)
            if found and offset not in found and not facts.losses.excuse(place, offset, send.invoked_s):
                read = facts.final.get(place)
                if read is None or offset >= read.log_start:
                    yield f"{told(send)}; read at offset {found[0]}"


class Duplicate(Invariant):
    """A record of an idempotent producer stands once in its partition, however often it was sent.

    Exceptions: the record was deleted, and a replica that had begun empty after it led before its producer had an
    answer. Or leaders that did not know the record were elected meanwhile, and then a leader that did.
    """

    scenarios = (5, 27)

    def violations(self, facts: Facts) -> Iterator[str]:
        for place, values in facts.read_at.items():
            sent = facts.sent.get(place, {})
            for value, offsets in values.items():
                if len(offsets) < 2:
                    continue
                sends = [send for send in sent.get(value, ()) if send.outcome is not Outcome.FAIL]
                start = facts.begun_anew_at(place, sends)
                forgotten = sum(offset < start for offset in offsets)
                copies = max(forgotten, len(offsets) - forgotten)
                if any(facts.losses.during(place, send) for send in sends):
                    continue
                if copies > len(sends) > 0 and all(send.idempotent for send in sends):
                    yield f"{told(sends[0])}; read at offsets {offsets} of {named(place)}"


class SendsOutOfOrder(Invariant):
    """Records of a producer stand in its order in each partition, and acknowledged offsets rise.

    For an idempotent producer this covers all requests in flight; for others only a send that waited for the answer to
    the previous one. A record that an idempotent producer sent with a new sequence number may appear twice, and later.
    So may a record that was under way to another broker when a later record went to a leader that may not know the
    producer (docs/TRANSACTIONS.md, the gaps that Kafka has as well).
    """

    scenarios = (6,)

    def violations(self, facts: Facts) -> Iterator[str]:
        for (_, place), sends in facts.by_producer.items():
            placed = [
                send
                for send in sends
                if send.acks == ALL_IN_SYNC
                and send.outcome is Outcome.OK
                and send.offset is not None
                and send.keeps_order
                and not facts.losses.excuse(place, send.offset, send.invoked_s)
            ]
            promised = [send for send in placed if send.idempotent]
            yield from self._in_turn(promised) if promised else self._one_after_the_other(placed)
        if any(send.idempotent for send in facts.history.sends):
            for place in facts.final:
                yield from self._in_the_log(facts, place)

    def _in_turn(self, sends: list[Send]) -> Iterator[str]:
        highest: Send | None = None
        for send in sends:
            if highest is None or _offset(send) >= _offset(highest):
                highest = send
            else:
                yield f"{told(send)}; before it {told(highest)}"

    def _one_after_the_other(self, sends: list[Send]) -> Iterator[str]:
        answered = HighestBefore((send.completed_s or send.invoked_s, _offset(send)) for send in sends)
        for send in sends:
            before = answered.at(send.invoked_s)
            if _offset(send) < before:
                yield f"{told(send)}; offset {before} had been acknowledged before it was sent"

    def _in_the_log(self, facts: Facts, place: Place) -> Iterator[str]:
        if facts.losses.touch(place):
            return
        sent = facts.sent.get(place, {})
        last: dict[str, Send] = {}
        seen: set[bytes] = set()
        for offset, value in sorted(facts.final[place].records):
            sends = sent.get(value, ())
            if len(sends) != 1 or value in seen or not sends[0].idempotent:
                continue
            seen.add(value)
            send = sends[0]
            if not send.keeps_order:
                continue
            before = last.setdefault(send.producer, send)
            if send.sequence_number < before.sequence_number:
                yield (
                    f"{told(send)}; stands at offset {offset}, behind {short(before.value)}, which was number "
                    f"{before.sequence_number}"
                )
            else:
                last[send.producer] = send


def _offset(send: Send) -> int:
    assert send.offset is not None
    return send.offset


class FailedSendAppears(Invariant):
    """A refused record (NOT_ENOUGH_REPLICAS, too large, a gap in its sequence) is never seen, so the producer may send
    it again without a duplicate.
    """

    scenarios = (24, 25, 26)

    def violations(self, facts: Facts) -> Iterator[str]:
        for place, values in facts.ever_read.items():
            sent = facts.sent.get(place, {})
            for value, offset in values.items():
                sends = sent.get(value)
                if sends and all(send.outcome is Outcome.FAIL for send in sends):
                    yield f"{told(sends[0])}; read at offset {offset}"


class OnlyWhatWasSent(Invariant):
    """Readers get only records that a client sent to this partition, unchanged.

    Judged for topics with recorded sends.
    """

    scenarios = (3, 23)

    def violations(self, facts: Facts) -> Iterator[str]:
        for place, values in facts.ever_read.items():
            if place[0] not in facts.topics_sent_to:
                continue
            sent = facts.sent.get(place, {})
            for value, offset in values.items():
                if value not in sent:
                    yield f"{short(value)} was read at {named(place)} offset {offset}, and never sent there"


class AcknowledgedAfterFailedAppend(Invariant):
    """A broker whose disk refused an append acknowledges no records of that partition until its log is online again."""

    scenarios = (24,)

    def violations(self, facts: Facts) -> Iterator[str]:
        if not facts.history.failed_appends:
            return
        failures: dict[tuple[int, Place], list[tuple[float, float]]] = {}
        for failed in facts.history.failed_appends:
            until_s = float("inf") if failed.until_s is None else failed.until_s
            key = (failed.broker, (failed.topic, failed.partition))
            failures.setdefault(key, []).append((failed.at_s, until_s))
        for send in facts.history.sends:
            if send.broker is None or send.completed_s is None or send.outcome is not Outcome.OK:
                continue
            for at_s, until_s in failures.get((send.broker, (send.topic, send.partition)), ()):
                if at_s < send.invoked_s and send.completed_s <= until_s:
                    yield f"{told(send)}, by broker {send.broker}, whose log had failed at {at_s:.6f}"


def _says_out_of_order(send: Send) -> bool:
    """Return whether the error reports a sequence out of order.

    In a transaction UNKNOWN_PRODUCER_ID means that the cluster has aborted it, e.g. after its timeout.
    """
    return send.error in SEQUENCE_ERRORS and not (
        send.transaction is not None and send.error == "UNKNOWN_PRODUCER_ID"
    )


class SequenceRefusedWithoutReason(Invariant):
    """An idempotent producer with all earlier records acknowledged never gets an out-of-order error, despite retention
    and changes of leader (KIP-360).

    Exceptions: once where records were lost; and where the preceding record was deleted or compacted away while a later
    record of this producer remains.
    """

    scenarios = (28, 29)

    def violations(self, facts: Facts) -> Iterator[str]:
        if not any(_says_out_of_order(send) for send in facts.history.sends):
            return
        for (_, place), sends in facts.by_producer.items():
            if facts.losses.touch(place):
                yield from self._again(sends, facts.losses.over_s(place))
                continue
            for number, send in enumerate(sends):
                if send.idempotent and _says_out_of_order(send):
                    gone = facts.may_be_deleted(send) or facts.may_be_compacted(send)
                    if gone and _was_followed(send, sends[number + 1 :]):
                        break
                    yield f"{told(send)}; everything before it was acknowledged"
                if send.outcome is not Outcome.OK:
                    break

    def _again(self, sends: list[Send], over_s: float) -> Iterator[str]:
        """Yield repeated refusals: after a loss a producer is refused once, and then starts over."""
        refused_s = float("inf")
        for send in sends:
            if not _says_out_of_order(send) or send.invoked_s <= over_s or send.completed_s is None:
                continue
            if send.invoked_s > refused_s:
                yield f"{told(send)}; it was told so already, at {refused_s:.6f}, and nothing was lost since"
            refused_s = min(refused_s, send.completed_s)


def _was_followed(send: Send, later: list[Send]) -> bool:
    """Return whether a later record was in flight before the outcome of this one was known."""
    return any(send.completed_s is None or later_send.invoked_s < send.completed_s for later_send in later)


class ProducerIdentityShared(Invariant):
    """A producer id and epoch belong to one producer. Epochs of an id rise and never pass 32767; the next one is a new
    id.

    Two producers of one identity would be each other's duplicates.
    """

    scenarios = (29,)

    def violations(self, facts: Facts) -> Iterator[str]:
        holders: dict[tuple[int, int], str] = {}
        epochs: dict[int, int] = {}
        for given in facts.history.identities:
            identity = (given.producer_id, given.producer_epoch)
            holder = holders.setdefault(identity, given.producer)
            if holder != given.producer:
                yield f"id and epoch {identity} were given to {holder} and to {given.producer}"
            if not 0 <= given.producer_epoch <= PRODUCER_EPOCH_MAX:
                yield f"{given.producer} was given id {given.producer_id} with epoch {given.producer_epoch}"
            if given.transactional_id is not None:
                continue  # The answer to the replaced producer may arrive later.
            if given.producer_epoch < epochs.setdefault(given.producer_id, given.producer_epoch):
                yield f"{given.producer} was given {identity} after epoch {epochs[given.producer_id]}"
            epochs[given.producer_id] = max(epochs[given.producer_id], given.producer_epoch)
