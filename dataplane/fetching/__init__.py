"""What a consumer's fetch reads, its session, and how the answer leaves without waiting for a disk."""
