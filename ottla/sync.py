"""Synchronous clients for scripts, notebooks and executors. Their code and examples are in client/sync/."""

from ottla.client.sync import (
    Admin,
    Backup,
    ConsumedBatch,
    Consumer,
    ExactlyOnce,
    Producer,
    ShareConsumer,
    ShareTask,
    Transaction,
    TransactionWriter,
    Worker,
)

__all__ = [
    "Admin",
    "Backup",
    "ConsumedBatch",
    "Consumer",
    "ExactlyOnce",
    "Producer",
    "ShareConsumer",
    "ShareTask",
    "Transaction",
    "TransactionWriter",
    "Worker",
]
