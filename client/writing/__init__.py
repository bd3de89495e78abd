"""Taking records: what producers, and those who write in another producer's transaction, have in common."""
