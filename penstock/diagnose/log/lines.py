"""Decide by its bytes how much of a line must be parsed: most of a large log is not needed."""

from __future__ import annotations

from penstock.diagnose.log.fields import SQL_TIMES

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
