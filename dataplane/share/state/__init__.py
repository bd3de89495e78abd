"""The durable states of share-partitions, in the partitions of `__share_group_state` that this broker leads.

`ShareStateCoordinator` serves them: `ShareState` decides and combines, `StateShard` writes and replays.
"""
