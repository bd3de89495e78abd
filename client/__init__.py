"""Connections, metadata, producer, consumer and admin for any Kafka-protocol cluster.

`Producer`, `Consumer` and `Admin` are what programs use; `Cluster` (connections and metadata) and
`Connection` stand below them. One rule: whatever decides (accumulator, partitioner, assignors, metadata
cache) is plain and pure, and the shells around it hold the sockets and the clock.
"""
