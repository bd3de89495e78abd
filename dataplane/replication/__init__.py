"""Replication of partitions: leaders, followers, and the fetches between them.

The package `roles` makes the decisions, without clock, file or socket. `replica` is one replica with its log and all
clients and brokers that wait for it. `leader` and `follower` are the two sides of a fetch session between brokers.
`replicas` holds all replicas of the broker and follows the cluster image. One rule governs all of it: the high
watermark moves only over records that every member of the maximal ISR has acknowledged in this leader epoch
(docs/REPLICATION.md).
"""
