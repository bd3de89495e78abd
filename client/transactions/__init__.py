"""Transactions: of a producer, of writers that join a producer's transaction, and of readers that read them whole."""
