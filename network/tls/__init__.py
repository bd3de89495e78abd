"""TLS: keys and certificates from files of several kinds, contexts made of them, and connections that do not block.

`stores` reads PEM, PKCS12 and JKS, `checks` says what is wrong with what was read, and `contexts` hands it to OpenSSL.
`handshake` begins a connection, `stream` encrypts and decrypts its bytes, and `transport` lets it pass for a socket.
The rule: nothing that was decrypted touches a disk.
"""
