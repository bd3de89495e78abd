"""How late the flights of each carrier leave: flights -> parsed -> counted by carrier and window of time.

A record is a flight, as a line of CSV in the order of `COLUMNS` or as JSON with such names, or the announcement
`until 2014-01-01 00:00:00`: no flight before that time comes any more, in any partition. With it the last windows end,
as nothing else would tell that there is no more to come.

A window's result is given once, when the watermark has passed its end. Delays are minutes, all numbers are whole: so
the result can be compared exactly.
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
"""Of a flight, in the order of the CSV. `hour` and `minute` are of the schedule, at the airport; NA is missing."""
NEEDED = "year int, month int, day int, hour int, minute int, carrier string, dep_delay int"
"""Those of them that JSON has to have; a flight without dep_delay was cancelled."""
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
    """For every carrier and window: flights, those of them that departed, and their delays in minutes.

    `malformed`: what to do with a record that is no flight. Raises ValueError for a time that is none.
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
        .where("flights > 0")  # an announcement is no flight
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
    """The record which says that no flight before this time comes any more."""
    return f"{UNTIL}{time:%Y-%m-%d %H:%M:%S}".encode()


def parsed(records: DataFrame, format: str, malformed: str) -> DataFrame:
    """`scheduled`, `carrier` and `dep_delay` of each flight; of an announcement only its time."""
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
        F.col(f"flight.{one}") for one in ("year", "month", "day", "hour", "minute")
    )
    return F.try_make_timestamp(year, month, day, hour, minute, F.lit(0))


def _no_flight() -> Column:
    where = F.format_string("%s-%d, offset %d", "topic", "partition", "offset")
    return F.raise_error(F.concat(where, F.lit(" holds no flight; steps.malformed: skip goes on without")))
