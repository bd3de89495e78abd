"""TLS: keys and certificates from files of several kinds, contexts made of them, and non-blocking connections.

`stores` reads PEM, PKCS12 and JKS, `checks` reports faults of a store, and `contexts` passes stores to OpenSSL.
`handshake` begins a connection, `stream` encrypts and decrypts its bytes, and `transport` gives it the interface of a
socket. Invariant: decrypted data never touches a disk.
"""
