"""Who is at the other end of a connection.

`principal` is a name with its type, and `peer_session` what a broker knows of one peer. The rule: a session never
changes. Who authenticates gets another one, and whatever holds on to a session sees by identity that it is over.
"""
