"""Wire formats: the layout and meaning of bytes. The package uses no sockets, no clock and no asyncio.

`messages` declares requests, answers, commands and metadata records, which `wire` encodes. `records` has batches,
`settings` configuration keys, `credentials` those of users, `cluster` the metadata image, `session` connections between
nodes, and `direct_codecs` codecs without message objects.
"""
