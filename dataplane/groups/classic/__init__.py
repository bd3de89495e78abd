"""Classic groups: members join and sync, one of them, the leader, computes the assignment (KIP-62, 345, 394).

`Group` is the pure machine of one group; `membership` says what goes in and comes out. The one rule: nobody is
told an assignment before it is stored.
"""
