"""Conversations in which Ottla answers differently from Kafka on purpose. docs/SUPPORT.md has this for users."""

from __future__ import annotations

from typing import Final

REASONS: Final = {
    "a released batch in batch-optimised mode": "Kafka delivers again the records that one fetch took together, Ottla "
    "the batches of the log.",
    "the last delivery with the default limit": "Kafka delivers again the records that one fetch took together, Ottla "
    "all records with one delivery count.",
    "an unknown mode": "Kafka's broker fails; Ottla names the fault.",
    "never taken": "Kafka gives the other error if the member took a part of the batch in which the offset lies.",
    "everything accepted, then again": "Kafka's broker fails at a range that begins before an empty window and ends "
    "behind it.",
    "malformed ranges": "Kafka skips offsets below 0 as finished.",
    "strict within the locks": "Kafka exceeds the limit of locks up to the end of a batch that is partly taken.",
    "read committed": "Kafka delivers the markers of transactions, which clients answer as gaps.",
    "all aborted": "Kafka delivers the markers of transactions, which clients answer as gaps.",
    "read uncommitted": "Kafka delivers the markers of transactions, which clients answer as gaps.",
    "acknowledged across markers": "Kafka delivers the markers of transactions, which clients answer as gaps.",
    "a marker as a gap": "Kafka delivers the markers of transactions, which clients answer as gaps.",
    "deleted below held records": "Kafka counts deleted records that a member held as not delivered.",
    "deleted above all": "Kafka learns of deleted records one fetch later.",
}
"""The reasons, by conversation. `ottla.json` has Ottla's answers."""
