"""A call of Spark that a time limit cuts off does not give its answer to later calls."""

from __future__ import annotations

import signal
import threading
from typing import Any

import pytest
from pyspark.sql import SparkSession


class CutOff(BaseException):
    """The exception of a time limit, which is no Exception, as pytest's is not."""


def test_later_calls_get_their_own_answers(spark: SparkSession, request: pytest.FixtureRequest) -> None:
    jvm: Any = spark._jvm
    # It keeps the exception, as of a test that fails. The traceback keeps the connection alive.
    call = pytest.CallInfo.from_call(lambda: _cut_off(jvm), "call")
    assert call.excinfo is not None
    assert call.excinfo.errisinstance(CutOff)
    report = request.node.ihook.pytest_runtest_makereport(item=request.node, call=call)
    assert report.failed
    assert [jvm.java.lang.Math.abs(-number) for number in (1, 2, 3)] == [1, 2, 3]


def _cut_off(jvm: Any) -> None:
    """Call the JVM, and raise CutOff before the answer is there."""

    def raise_cut_off(*_: object) -> None:
        raise CutOff

    before = signal.signal(signal.SIGUSR1, raise_cut_off)
    alarm = threading.Timer(0.2, signal.pthread_kill, (threading.main_thread().ident, signal.SIGUSR1))
    try:
        alarm.start()
        jvm.java.lang.Thread.sleep(1_000)
    finally:
        alarm.cancel()
        alarm.join()
        signal.signal(signal.SIGUSR1, before)
