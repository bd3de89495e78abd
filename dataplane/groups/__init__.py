"""Consumer groups: the state machines of groups, and the store of committed offsets.

`ClassicGroup` and `ConsumerGroup` are pure machines of one group. A `Shard` runs the groups of one
`__consumer_offsets` partition that this broker leads, and a `GroupCoordinator` holds the shards. The one rule: a client
is told only what lies below the high watermark of that partition.
"""
