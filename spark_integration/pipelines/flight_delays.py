"""Departure delays by carrier: flights -> parsed -> counted by carrier and window of time.

A record is a flight or an announcement. A flight is a line of CSV in the order of `COLUMNS`, or JSON with these names.
The announcement `until 2014-01-01 00:00:00` says that no earlier flight will follow, in any partition. It lets the last
windows end, since otherwise no record would show that the data is complete.

A window's result is emitted once, after the watermark has passed its end. Delays are minutes, and all numbers are
whole, so results can be compared exactly.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

COLUMNS = (
    "year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int, sched_arr_time int, "
    "arr_delay int, carrier string, flight int, tailnum string, origin string, dest string, air_time int, "
    "distance int, hour int, minute int, time_hour string"
)
"""Columns of a flight, in the order of the CSV. `hour` and `minute` are the scheduled local time; NA means missing."""
NEEDED = "year int, month int, day int, hour int, minute int, carrier string, dep_delay int"
"""Columns that JSON must have. A flight without dep_delay was cancelled."""
UNTIL = "until "
_CORRUPT = "corrupt"
_TIME = re.compile(r"[1-9]\d* (second|minute|hour|day|week)s?")


def flight_delays(
    records: DataFrame,
    *,
    format: Literal["csv", "json"] = "csv",
    window: str = "1 day",
    watermark: str = "1 day",
    malformed: Literal["fail", "skip"] = "fail",
) -> DataFrame:
    """Return flights, departed flights, and delays in minutes for every carrier and window.

    `malformed`: the reaction to a record that is not a flight. Raises ValueError for an invalid `window` or
    `watermark`.
    """
    for name, time in (("window", window), ("watermark", watermark)):
        if not _TIME.fullmatch(time):
            raise ValueError(f"{name} is a time like '1 day' or '30 minutes', not {time!r}")
    return (
        parsed(records, format, malformed)
        .withWatermark("scheduled", watermark)
        .groupBy(F.window("scheduled", window), "carrier")
        .agg(
            F.count("carrier").alias("flights"),
            F.count("dep_delay").alias("departed"),
            F.coalesce(F.sum("dep_delay"), F.lit(0)).cast("long").alias("delay_minutes"),
            F.max("dep_delay").alias("longest_delay_minutes"),
        )
        .where("flights > 0")  # an announcement is not a flight
        .select(
            "carrier",
            F.col("window.start").alias("window_start"),
            F.col("window.end").alias("window_end"),
            "flights",
            "departed",
            "delay_minutes",
            "longest_delay_minutes",
        )
    )


def until(time: datetime) -> bytes:
    """Return the record which announces that no flight before this time will follow."""
    return f"{UNTIL}{time:%Y-%m-%d %H:%M:%S}".encode()


def parsed(records: DataFrame, format: str, malformed: str) -> DataFrame:
    """Return `scheduled`, `carrier` and `dep_delay` of each flight; an announcement has only its time."""
    text = F.col("value").cast("string")
    announced = F.try_to_timestamp(F.substring(text, len(UNTIL) + 1, 19))
    flight = F.from_csv if format == "csv" else F.from_json
    columns = f"{COLUMNS if format == 'csv' else NEEDED}, {_CORRUPT} string"
    options = {"nullValue": "NA", "columnNameOfCorruptRecord": _CORRUPT}
    read = records.select(
        "topic",
        "partition",
        "offset",
        F.when(text.startswith(UNTIL), announced).alias("announced"),
        flight(text, columns, options).alias("flight"),
    ).select("*", "flight.carrier", "flight.dep_delay", _scheduled().alias("departure"))
    is_flight = F.col(f"flight.{_CORRUPT}").isNull() & F.col("carrier").isNotNull()
    time = F.coalesce("announced", F.when(is_flight, F.col("departure")))
    if malformed == "fail":
        time = F.coalesce(time, _no_flight().cast("timestamp"))
    return read.select(time.alias("scheduled"), "carrier", "dep_delay").where("scheduled is not null")


def _scheduled() -> Column:
    year, month, day, hour, minute = (
        F.col(f"flight.{unit}") for unit in ("year", "month", "day", "hour", "minute")
    )
    return F.try_make_timestamp(year, month, day, hour, minute, F.lit(0))


def _no_flight() -> Column:
    where = F.format_string("%s-%d, offset %d", "topic", "partition", "offset")
    return F.raise_error(F.concat(where, F.lit(" holds no flight; steps.malformed: skip goes on without")))
