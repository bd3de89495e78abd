"""Clients for any cluster that speaks the Kafka protocol: connections, metadata, producer, consumer and admin.

Programs use `Producer`, `Consumer` and `Admin`, `TransactionWriter` to write in another process's transaction, and
`ExactlyOnce` to turn records into other records. They are `ottla.Producer` and so on; programs without an event loop
use their counterparts in `sync`. `Cluster` (connections and metadata) and `Connection` are the layers below.

One rule: all decisions (accumulator, partitioner, assignors, metadata cache, transaction state, assembly of whole
transactions) are made by pure code without I/O. The shells around this code hold the sockets and the clock.
"""
