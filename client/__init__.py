"""Connections, metadata, producer, consumer and admin for any Kafka-protocol cluster.

`Producer`, `Consumer` and `Admin` are what programs use, `TransactionWriter` to write in another process's transaction,
and `ExactlyOnce` to turn records into others: as `ottla.Producer` and so on, and in `sync` where there is no event
loop. `Cluster` (connections and metadata) and `Connection` stand below them. One rule: whatever decides (accumulator,
partitioner, assignors, metadata cache, the state of a transaction, the assembly of whole ones) is plain and pure, and
the shells around it hold the sockets and the clock.
"""
