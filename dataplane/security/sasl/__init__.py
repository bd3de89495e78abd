"""Logins: each mechanism of SASL as an exchange of messages, without sockets."""
