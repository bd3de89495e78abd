"""Share groups (KIP-932): cooperative queues, in which members acknowledge each record by itself.

`SharePartition` is the pure state of one group and partition, at the partition's leader. `ShareSessionCache` is the
pure state of the share sessions of a broker.
"""
