"""Spark's daemon of Python workers, with what they import loaded once: each worker is forked from it, and many are.

Spark's own loads nothing, as a library might start threads, which a fork does not have.
"""

import gc
import importlib
import os

from pyspark.daemon import manager

# Neither NumPy nor Arrow starts a thread then.
os.environ |= {"OPENBLAS_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}
LOADED = (
    "pandas",
    "pyarrow",
    "pyspark.worker",
    "pyspark.sql.worker.plan_data_source_read",
    "ottla.spark_integration.data_source",
    "ottla.spark_integration.sink.batch_writer",
    "ottla.spark_integration.sink.stream_writer",
    "ottla.spark_integration.source.batch_reader",
    "ottla.spark_integration.source.stream_reader",
)

if __name__ == "__main__":
    for name in LOADED:
        importlib.import_module(name)
    gc.freeze()  # each worker collects garbage after each task
    manager()
