"""How commands reach a cluster that may be secured: flags, the environment and profiles, and where passwords come from.

`precedence` makes of them the options of a client. The rule: no secret is an argument, and none is printed.
"""
