"""The answer in words: what failed, what the critical path is made of, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.diagnose.causes import CAUSES, LatencyFinding
from penstock.diagnose.findings.failed_work import FailedWork
from penstock.diagnose.findings.idle_time import IdleTime
from penstock.diagnose.whatif.scenarios import Rehearsal
from penstock.units.figures import seconds

LITTLE_TASK_TIME = 0.3
# A gain below this is not worth a line.
LEAST_GAIN_SHARE = 0.01
HAPPEN_ONCE = frozenset({"start-up", "cold batch"})


def answer_in_words(found: list[LatencyFinding]) -> str:
    """Return the one or two sentences that come first."""
    if not found:
        return "Nothing happened in this span, so there is no critical path."
    task_time = sum(item.share for item in found if CAUSES[item.cause].is_task_time)
    started = sum(item.share for item in found if item.cause in HAPPEN_ONCE)
    answer = found[0].sentence
    if found[0].cause == "start-up" and len(found) > 1:
        # a start happens once: the next cause is the one that stays
        answer += f" After it, {found[1].sentence}"
    answer += "".join(f" {item.sentence}" for item in found[1:] if item.cause == "cold batch")
    if task_time < LITTLE_TASK_TIME * (1 - started):
        answer += " Task time is not your problem; more executors would not help."
    return answer


def answer_in_lines(
    found: list[LatencyFinding],
    failed: FailedWork | None,
    idle: IdleTime | None,
    rehearsal: Rehearsal | None,
) -> str:
    """Return at most five lines: what failed, when no job ran, what held up the rest, what to gain."""
    lines = []
    if failed:
        lines.append(failed.sentence)
    if idle:
        times = f"{seconds(idle.seconds)} of {seconds(idle.of_seconds)}"
        lines.append(f"No job ran in {times}; what follows is about the time in which jobs ran.")
    if found or not lines:
        lines.append(answer_in_words(found))
    if rehearsal and not rehearsal.is_trusted:
        took = f"{seconds(rehearsal.seconds)} instead of {seconds(rehearsal.graph.measured_seconds)}"
        missed = f"{rehearsal.error:.0%} of the time in which jobs ran is missed"
        lines.append(f"A replay of what happened takes {took}: {missed}, so nothing is predicted from it.")
    if failed and failed.jobs:
        # what a run that failed would gain elsewhere is beside the point
        lines.append(f"Mend this first: {failed.advice} {describe_settings(failed.settings)}".rstrip())
        return "\n".join(lines)
    best = max(found, key=lambda one: one.gain_seconds or 0.0, default=None)
    if best and (best.gain_share or 0.0) >= LEAST_GAIN_SHARE:
        lines.append(f"Most would be gained here: {advise(best)}")
    return "\n".join(lines)


def advise(finding: LatencyFinding) -> str:
    """Say what to do about a finding, what to set, and what it is worth."""
    return " ".join(
        filter(None, (finding.advice, describe_settings(finding.settings), describe_gain(finding)))
    )


def describe_settings(settings: Mapping[str, str]) -> str:
    """Say what to set."""
    return f"Set {' and '.join(f'{key}={value}' for key, value in settings.items())}." if settings else ""


def describe_gain(finding: LatencyFinding) -> str:
    """Say how many seconds and which share of the span following the advice is worth."""
    gain, share = finding.gain_seconds or 0.0, finding.gain_share or 0.0
    if share < LEAST_GAIN_SHARE:
        return ""
    unsure = finding.uncertainty_seconds or 0.0
    give_or_take = f" ± {seconds(unsure)}" if unsure else ""
    return f"Worth up to {seconds(gain)}{give_or_take} ({share:.0%})."
