"""How a follower copies the log of its leader."""
