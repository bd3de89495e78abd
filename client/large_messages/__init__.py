"""Values larger than one record: split by the producer, put together by the consumer, as records like others between.

Main objects: `Splitter` (a record as segments), `Assembly` (segments as a record), `SplitDelivery` (what is told of the
segments, as one answer). One rule: a message is told of once, whole, at the offset of its last segment, and whoever
begins to read again begins before the first segment of all that is not told of yet.
"""
