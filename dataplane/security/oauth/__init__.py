"""Tokens of authorization servers: the checks by a broker, and the keys that tokens are signed with.

`tokens` decides, and reads no clock. `provider_keys` fetches the keys, and caches them. The rule: only `signatures`
imports joserfc, and it is imported only if a listener offers OAUTHBEARER.
"""
