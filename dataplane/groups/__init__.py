"""Consumer groups: the group state machine and the offsets store.

`Group` is the pure machine of one classic group; a `Shard` runs the groups of one `__consumer_offsets`
partition that this broker leads, and a `GroupCoordinator` holds the shards. The one rule: what a client is
told is below the high watermark of that partition.
"""
