"""The security of a client's connections: verification of brokers by TLS, and the client's own login by SASL.

`options` has the options and the rules for their combination, `tls` loads certificates, `logins` has the mechanisms,
and `oauth` fetches tokens. The rule: no text of this package shows a secret.
"""
