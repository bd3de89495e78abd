"""Large messages on the consumer's side: segments are reassembled into records, mixed with ordinary records.

Main object: `Assembly` (segments as a record). One rule: a message is handed out once, whole, at the offset of its last
segment. A reader that resumes therefore begins before the first segment of all messages not handed out yet.
"""
