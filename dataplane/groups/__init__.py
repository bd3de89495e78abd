"""Consumer groups: the state machines of groups, and the store of committed offsets.

`ClassicGroup` and `ConsumerGroup` are pure state machines of one group. A `Shard` runs the groups of one
`__consumer_offsets` partition that this broker leads, and a `GroupCoordinator` holds the shards. The one rule: an
answer to a client reflects only records below the high watermark of that partition.
"""
