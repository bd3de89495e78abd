"""The console: server-rendered pages for operators of any cluster that speaks Kafka's protocol.

`serving` opens the clients and listens, `app` assembles the parts. Each area of the console is one module in `pages/`:
`area` holds the classes that such a module uses, `routes` turns areas into addresses. `live/` samples the cluster and
sends changes to open pages. `security` decides which requests are admitted, and `guard` applies that to every request.

The console is an ordinary client. It knows only what `ottla.Admin`, `ottla.Consumer`, `ottla.Producer` and the metrics
endpoints report, and brokers do not know that it exists.
"""
