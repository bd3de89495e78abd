"""Tokens of authorization servers: what a broker believes of them, and the keys that they are signed with.

`tokens` decides, and reads no clock. `provider_keys` asks for the keys, and keeps them. The rule: only
`signatures` imports joserfc, and it is imported only where a listener offers OAUTHBEARER.
"""
