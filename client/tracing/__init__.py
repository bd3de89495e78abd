"""Traces by OpenTelemetry: a record has its creator's context, and its handler's span is linked to that context.

`options` has the switch, and `spans` begins and ends spans. `iteration` is `async for` over a consumer with a span for
each record, and `attempts` has the spans of a worker. The single rule: nothing of OpenTelemetry is imported unless a
client has `tracing=True`.
"""
