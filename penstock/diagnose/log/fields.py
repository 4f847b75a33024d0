"""Read the lines of a log as far as they are needed: which must be parsed, and single values of events.

Names have a bounded length; times, lengths and counts are ones that can be.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import orjson

from penstock.diagnose.log.application import FAILED, KILLED, SUCCEEDED, Fields
from penstock.units.texts import cut_text

END_OF_TIMES = 10**14
"""Milliseconds up to the year 5138; a later time is an error, and might overflow in microseconds."""
LONGEST_NAME = 300
"""Characters of a name. Longer ones are damage, or generated; drawing them takes their length squared."""
SQL_TIMES = {
    "time to commit changes": "state_commit",
    "RocksDB: load - time taken to load the store": "state_load",
    "time to execute Python code": "python",
}
_TASK_START = b'{"Event":"SparkListenerTaskStart"'
_TASK_END = b'{"Event":"SparkListenerTaskEnd"'
_SUCCESS = b'"Reason":"Success"'
_BLOCKS = b'"Updated Blocks":[{'
_ACCUMULABLES = b'"Accumulables":['
_AFTER_ACCUMULABLES = b']},"Task '
_FINISH = b'"Finish Time":'
# All names of SQL times have this in common; few others do.
_SHARED = b"time t"
_NAMES = tuple(name.encode() for name in SQL_TIMES)


def read_name(value: Any) -> str:
    """Return a name, shortened if it is too long."""
    return cut_text(str(value), LONGEST_NAME)


def read_amount(value: Any, most: float = END_OF_TIMES) -> float:
    """Return a length or a count; reject what is not a number from 0 to `most`."""
    amount = float(value)
    if not (math.isfinite(amount) and 0 <= amount <= most):
        raise ValueError(f"{value!r} is no length or count")
    return amount


def read_integers(identifiers: Iterable[Any]) -> tuple[int, ...]:
    """Return the numbers of stages or jobs."""
    return tuple(int(one) for one in identifiers)


def name_chain(rdds: Iterable[Fields]) -> str:
    """Return the plan nodes that a stage runs, from input to output, as the scopes of its RDDs name them."""
    names: list[str] = []
    for rdd in sorted(rdds, key=lambda rdd: int(rdd["RDD ID"])):
        scope = rdd.get("Scope")
        name = str(orjson.loads(scope)["name"]) if scope else ""
        if name and name not in names[-1:]:
            names.append(name)
    return read_name(" > ".join(dict.fromkeys(names)))


def read_outcome(event: Fields, information: Fields) -> int:
    """Return how a task ended."""
    if information.get("Killed"):
        return KILLED
    reason = (event.get("Task End Reason") or {}).get("Reason", "Success")
    return SUCCEEDED if reason == "Success" and not information.get("Failed") else FAILED


def sum_sql_times(accumulables: Iterable[Fields]) -> dict[str, int]:
    """Return the task's milliseconds in state stores and Python code, where SQL metrics have them."""
    times = dict.fromkeys(SQL_TIMES.values(), 0)
    for value in accumulables:
        column = SQL_TIMES.get(str(value.get("Name")))
        if column:
            times[column] += int(value.get("Update") or 0)
    return times


def is_of_a_good_task(line: bytes) -> bool:
    """Return whether the line starts a task, or ends one that succeeded and tells of no cached blocks."""
    if line.startswith(_TASK_START):
        return True
    return line.startswith(_TASK_END) and _SUCCESS in line and _BLOCKS not in line


def drop_accumulables(line: bytes) -> bytes:
    """Return the end of a task without its accumulators where none of them is needed.

    They are most of a log. A quote inside of a string is escaped, so the bytes that are looked for are keys.
    """
    if not line.startswith(_TASK_END):
        return line
    begin = line.find(_ACCUMULABLES)
    end = line.rfind(_AFTER_ACCUMULABLES, begin) if begin >= 0 else -1
    # Spark writes them last in the task's information; in another order they stay
    if end < 0 or line.find(_FINISH, 0, begin) < 0:
        return line
    begin += len(_ACCUMULABLES)
    if line.find(_SHARED, begin, end) >= 0 and any(line.find(name, begin, end) >= 0 for name in _NAMES):
        return line
    return line[:begin] + line[end:]
