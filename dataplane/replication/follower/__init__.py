"""The follower's side of replication: copying the log of the leader."""
