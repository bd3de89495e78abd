"""The identity of a connection's peer, and its rights.

`principal` is a name with its type, and `peer_session` is a broker's knowledge of one peer. The rule: a session never
changes. A peer that authenticates gets another session, and code that holds the old one sees by identity that it is
over.
"""
