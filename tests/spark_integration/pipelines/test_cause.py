"""The message about a query that has ended with an error: one line of Spark's many."""

from __future__ import annotations

import pytest

from ottla.spark_integration.pipelines.running import _cause

AWAY = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: \
[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when it performs latestOffset: Traceback (most recent call last):
  File "spark_integration/source/cluster_view.py", line 48, in start
    await self.admin.start()
    ^^^^^^^^^^^^^^^^^^^^^^^^
ottla.client.failures.NoBrokerReachable: no broker answers at 127.0.0.1:1
 SQLSTATE: 38000 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: flight-delays [id = 1, runId = 2]
Current State: INITIALIZING
Thread State: RUNNABLE
"""
IN_FOREACH_BATCH = """[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided function: \
An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "sinks.py", line 45, in __call__
    write(frame, number)
BatchRefused: batch 3, table 'delays': there is no column 'carier'

JVM stacktrace:
org.apache.spark.api.python.PythonException: other
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            AWAY,
            "ottla.client.failures.NoBrokerReachable: no broker answers at 127.0.0.1:1",
        ),
        (
            IN_FOREACH_BATCH,
            "BatchRefused: batch 3, table 'delays': there is no column 'carier'",
        ),
        ("something else", "something else"),
        ("", "the query has ended with an error"),
    ],
)
def test_the_line_that_says_what_is_wrong(text: str, said: str) -> None:
    assert _cause(text) == said
