"""Failures, as the event log tells them: ends of tasks, results of jobs, and why executors went."""

from __future__ import annotations

import re
from dataclasses import dataclass

from penstock.diagnose.log.application import Fields
from penstock.units.texts import cut_text

OUT_OF_MEMORY, FETCH_FAILED, EXECUTOR_LOST, EXCEPTION, OUTPUT_LOST, DENIED, OTHER = (
    "out of memory",
    "fetch failed",
    "executor lost",
    "exception",
    "output lost",
    "commit denied",
    "other",
)
"""Kinds of failures of a task. With its output lost a task had succeeded and must run again."""
LONGEST_MESSAGE = 200
_KINDS = {
    "FetchFailed": FETCH_FAILED,
    "ExecutorLostFailure": EXECUTOR_LOST,
    "ExceptionFailure": EXCEPTION,
    "Resubmitted": OUTPUT_LOST,
    "TaskCommitDenied": DENIED,
}
_MEMORY = re.compile(
    r"OutOfMemory|\bMemoryError|OOM|memory limits|exit (?:code|status)(?: is)?:? ?(?:52|137)\b|"
    r"code (?:52|137)\b|java heap space|overhead limit|unable to acquire \d+ bytes",
    re.IGNORECASE,
)
_CANCELLED = re.compile(r"\bcancell?ed\b", re.IGNORECASE)
# An executor that is told to go has not failed.
_ORDERLY = re.compile(
    r"killed by driver|dynamic allocation|idle|decommission|exited with code 0\b|shutting down|"
    r"killed on request|driver (?:stopped|commanded)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """A task that failed, or whose output was lost later."""

    task: int
    stage: int
    attempt: int
    partition: int
    executor: str
    kind: str
    message: str
    at: int
    milliseconds: int


def read_task_failure(event: Fields, finish: int) -> TaskFailure | None:
    """Return the failure that a task's end tells of; None for success and for tasks that were killed."""
    reason, information = event.get("Task End Reason") or {}, event["Task Info"]
    name = str(reason.get("Reason", "Success"))
    if (
        information.get("Killed")
        or name == "TaskKilled"
        or (name == "Success" and not information.get("Failed"))
    ):
        return None
    said = _read_message(reason)
    return TaskFailure(
        task=int(information["Task ID"]),
        stage=int(event["Stage ID"]),
        attempt=int(event.get("Stage Attempt ID", 0)),
        partition=int(information.get("Index", -1)),
        executor=str(information.get("Executor ID", "")),
        kind=OUT_OF_MEMORY if _MEMORY.search(said) else _KINDS.get(name, OTHER),
        message=shorten_message(said) or name,
        at=finish,
        milliseconds=max(0, finish - int(information["Launch Time"])),
    )


def _read_message(reason: Fields) -> str:
    parts = (reason.get(name) for name in ("Class Name", "Description", "Message", "Loss Reason"))
    return ": ".join(str(part) for part in parts if part)


def shorten_message(text: str) -> str:
    """Return the first line of a message, cut where it gets long."""
    return cut_text(text.strip().partition("\n")[0].strip(), LONGEST_MESSAGE)


def read_job_failure(event: Fields) -> str:
    """Return why a job failed, or nothing if it succeeded or does not tell."""
    result = event.get("Job Result") or {}
    if result.get("Result") != "JobFailed":
        return ""
    return shorten_message(str((result.get("Exception") or {}).get("Message") or "")) or "no reason told"


def is_cancelled(failure: str) -> bool:
    """Return whether somebody took a job back: a person, or Spark when it no longer needs the result."""
    return bool(_CANCELLED.search(failure))


def is_out_of_memory(reason: str) -> bool:
    """Return whether a message tells of memory that ran out."""
    return bool(_MEMORY.search(reason))


def is_orderly_removal(reason: str) -> bool:
    """Return whether an executor was told to go, by dynamic allocation or at the end."""
    return not reason or (bool(_ORDERLY.search(reason)) and not is_out_of_memory(reason))
