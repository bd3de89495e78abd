"""Consumer groups of KIP-848: the coordinator computes the assignment, and members follow it by heartbeats.

`ConsumerGroup` is the pure state machine of one group, `reconciliation` the step of one member towards its target.
`assignors` compute targets, and `subscriptions` resolve the topics that members subscribe to. The one rule: a partition
belongs to one member at a time, and passes to the next member only when the last member has reported that it let go, or
was fenced.
"""
