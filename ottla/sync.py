"""Synchronous clients for scripts, notebooks and executors. They stand, with examples, in client/sync/."""

from ottla.client.sync import Admin, Consumer, Producer, Transaction, TransactionWriter

__all__ = ["Admin", "Consumer", "Producer", "Transaction", "TransactionWriter"]
