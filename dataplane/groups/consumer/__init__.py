"""Consumer groups of KIP-848: the coordinator computes the assignment, members follow it by heartbeats.

`ConsumerGroup` is the pure machine of one group, `reconciliation` the step of one member towards its target,
`assignors` compute targets, `subscriptions` say which topics are meant. The one rule: a partition belongs to
one member at a time, and to the next only when the last has said that it let go, or was fenced.
"""
