"""Transactions: of a producer, of those who write in another's, and of readers who want them whole."""
