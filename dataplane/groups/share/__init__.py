"""The share groups of KIP-932, whose members take records of the same partitions.

`ShareGroup` is the pure state machine of one group's membership. Its coordinator runs it in `share_shell`.
"""
