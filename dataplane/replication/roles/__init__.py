"""What a leader and a follower decide, without clock, socket or file."""
