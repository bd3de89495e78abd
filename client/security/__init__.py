"""What a client demands of brokers, and how it proves who it is: TLS, and the mechanisms of SASL.

`options` says what goes together and what it comes to, `tls` loads certificates, `logins` has the mechanisms and
`oauth` gets tokens. The rule: no text of this package shows a secret.
"""
