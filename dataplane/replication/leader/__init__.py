"""What the leader of a partition decides and remembers."""
