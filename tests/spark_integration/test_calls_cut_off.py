"""A call of Spark that a time limit cuts off does not give its answer to later calls."""

from __future__ import annotations

import signal
import threading
from typing import Any

from pyspark.sql import SparkSession

from tests.spark_integration.session import close_connection


class CutOff(BaseException):
    """The exception of a time limit, which is no Exception, as pytest's is not."""


def test_later_calls_get_their_own_answers(spark: SparkSession) -> None:
    jvm: Any = spark._jvm

    def cut_off(*_: object) -> None:
        raise CutOff

    before = signal.signal(signal.SIGUSR1, cut_off)
    alarm = threading.Timer(0.2, signal.pthread_kill, (threading.main_thread().ident, signal.SIGUSR1))
    kept = None
    try:
        alarm.start()
        jvm.java.lang.Thread.sleep(1_000)
    except CutOff as error:
        kept = error  # As pytest does. Its traceback keeps the connection alive.
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert kept is not None
    close_connection()
    assert [jvm.java.lang.Math.abs(-number) for number in (1, 2, 3)] == [1, 2, 3]
