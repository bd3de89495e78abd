"""The console: pages for operators, rendered on the server, of any cluster that speaks Kafka's protocol.

`serving` opens the clients and listens, `app` puts the parts together. An area of the console is one module in
`pages/`: `area` has what such a module is written with, `routes` makes addresses of it. `live/` samples the cluster
and sends what has changed to open pages. `security` decides who is let in, `guard` asks it about every request.

One rule: the console is a client like others. It knows nothing that `ottla.Admin`, `ottla.Consumer`, `ottla.Producer`
and the metrics endpoints do not tell, and brokers do not know that it exists.
"""
