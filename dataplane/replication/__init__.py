"""Replication of partitions: leaders, followers, and the fetches between them.

`leader`, `follower` and `in_sync` decide, without clock, file or socket; `partition.Partition` is one replica
with its log and everybody who waits for it; `follower_sessions` and `fetching` are the two sides of a fetch
session, and `replicas.Replicas` follows the cluster image. The one rule: the high watermark moves only over
records that every member of the maximal ISR has acknowledged in this leader epoch (docs/REPLICATION.md).
"""
