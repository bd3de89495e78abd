"""Classic groups: members join and sync, and one member, the leader, computes the assignment (KIP-62, 345, 394).

`ClassicGroup` is the pure state machine of one group; `membership` has its requests and effects. The one rule: no
member gets an assignment before it is stored.
"""
