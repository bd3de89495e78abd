"""TCP connections as clients, brokers and quorum nodes make them.

`dialing` connects to the first address of a host that answers, and `tcp_timeout` ends a connection whose other end is
gone. `tls` encrypts, and `kerberos` loads the library for tickets. `unauthenticated_limits` bounds the number of
unauthenticated peers. `loopback` recognises addresses of this machine. `http_get` fetches one small document.
`threads` runs blocking calls, and `garbage_collection` steers Python's collector. This package knows neither
Kafka's wire format nor Ottla's.
"""
