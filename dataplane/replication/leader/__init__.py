"""The leader's side of replication: answers to followers, and ISR changes submitted to the quorum."""
