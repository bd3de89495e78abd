"""Connection settings of commands: flags, the environment, profiles, and the source of passwords.

`precedence` merges them into the options of a client. Secrets are never taken from arguments and never printed.
"""
