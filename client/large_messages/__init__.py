"""Values larger than one record: split by the producer, reassembled by the consumer, mixed with ordinary records.

Main objects: `Splitter` (a record as segments), `Assembly` (segments as a record), `SplitMessage` (the deliveries of
the segments as one delivery). One rule: a message is handed out once, whole, at the offset of its last segment. A
reader that resumes therefore begins before the first segment of all messages not handed out yet.
"""
