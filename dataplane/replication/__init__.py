"""Replication of partitions: leaders, followers, and the fetches between them.

`roles` decides, without clock, file or socket. `replica` is one replica with its log and everyone who waits for it.
`leader` and `follower` are the two sides of a fetch session between brokers. `replicas` holds all replicas of the
broker and follows the cluster image. The one rule: the high watermark moves only over records that every member of the
maximal ISR has acknowledged in this leader epoch (docs/REPLICATION.md).
"""
