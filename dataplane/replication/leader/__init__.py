"""The leader's side of replication: answers to followers, and changes of the ISR on their way to the quorum."""
