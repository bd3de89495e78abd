"""The garbage collector only searches new objects while very many lasting objects are made.

A separate process runs all cases, since its collector is free of the threads and settings of other tests.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

CASES = """
import gc, json
from contextlib import ExitStack
from ottla.network.garbage_collection import only_new_garbage_collected

THRESHOLDS = 600, 7, 9
gc.set_threshold(*THRESHOLDS)
cases = {}

with only_new_garbage_collected(freezes=False):
    during = gc.get_threshold()
cases["one caller"] = during[1] > 1_000_000, gc.get_threshold() == THRESHOLDS

for name, order in (("first leaves first", (0, 1)), ("first leaves last", (1, 0))):
    callers = ExitStack(), ExitStack()
    for caller in callers:
        caller.enter_context(only_new_garbage_collected(freezes=False))
    callers[order[0]].close()
    during = gc.get_threshold()
    callers[order[1]].close()
    cases[name] = during != THRESHOLDS, gc.get_threshold() == THRESHOLDS

try:
    with only_new_garbage_collected(freezes=False):
        during = gc.get_threshold()
        raise ValueError("no")
except ValueError:
    cases["failure"] = during != THRESHOLDS, gc.get_threshold() == THRESHOLDS

frozen = gc.get_freeze_count()
with only_new_garbage_collected(freezes=True):
    made = [[number] for number in range(5_000)]
cases["frozen"] = gc.get_freeze_count() - frozen, len(made)
print(json.dumps(cases))
"""


@pytest.fixture(scope="module")
def cases() -> dict[str, list[int]]:
    done = subprocess.run(
        [sys.executable, "-c", CASES], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, list[int]] = json.loads(done.stdout)
    return result


@pytest.mark.parametrize("case", ["one caller", "first leaves first", "first leaves last", "failure"])
def test_older_objects_are_only_left_out_until_the_last_caller_leaves(
    cases: dict[str, list[int]], case: str
) -> None:
    left_out_meanwhile, as_before = cases[case]
    assert left_out_meanwhile
    assert as_before


def test_what_was_made_is_not_looked_through_later(cases: dict[str, list[int]]) -> None:
    newly_frozen, made = cases["frozen"]
    assert newly_frozen >= made
