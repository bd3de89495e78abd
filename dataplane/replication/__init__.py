"""Replication of partitions: leader and follower cores, the fetcher between brokers."""
