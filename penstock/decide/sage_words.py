"""Sage's decisions as proposals: Spark's own keys, and the reason in plain words."""

from __future__ import annotations

import math
from dataclasses import replace

from penstock.dataflow.window import EXECUTORS
from penstock.decide.policy import ExpectedEffect, Resize, Scale
from penstock.decide.sage_metrics import HeldSize, Overrides, Rule, Sizing, Symptom
from penstock.decide.sage_settings import MEBIBYTE

NAMES = {
    Rule.HEAP_UP: "heap scale-up",
    Rule.MEMORY_UP: "memory scale-up",
    Rule.CPU_UP: "CPU scale-up",
    Rule.PARALLELISM_UP: "parallelism scale-up",
    Rule.PARALLELISM_DOWN: "parallelism scale-down",
    Rule.HEAP_DOWN: "heap scale-down",
    Rule.MEMORY_DOWN: "memory scale-down",
    Rule.CPU_DOWN: "CPU scale-down",
}
"""Table 1 of the paper."""

_EXPECTED = {
    Rule.HEAP_UP: "heap use, GC time and GC frequency stay below their bounds",
    Rule.MEMORY_UP: "what is resident beside the heap fits the overhead",
    Rule.CPU_UP: "tasks no longer wait for CPU time",
    Rule.PARALLELISM_UP: "the backlog stops growing",
    Rule.PARALLELISM_DOWN: "the sources are read at their offered rate with less",
    Rule.HEAP_DOWN: "unused heap is given back and GC stays as it is",
    Rule.MEMORY_DOWN: "unused memory is given back and no executor is killed",
    Rule.CPU_DOWN: "unused cores are given back and the slots stay as many",
}

_SIGNS = {
    Symptom.OUT_OF_MEMORY: "{:.0f} executors ran out of heap",
    Symptom.HEAP_USED: "heap use never fell below {:.0%} of the heap, the bound is {:.0%}",
    Symptom.GC_TIME: "{:.0%} of the time went into GC, the bound is {:.0%}",
    Symptom.GC_COUNT: "{:.0f} collections a minute, the bound is {:.0f}",
    Symptom.SPILL: "at least {spilled} were spilled in every sample while GC was calm",
    Symptom.DRIVER_HEAP_USED: "the driver's heap use never fell below {:.0%}, the bound is {:.0%}",
    Symptom.MEMORY_KILL: "{:.0f} executors were killed for using too much memory",
    Symptom.OVERHEAD_USED: "{:.0%} of the memory beside the heap was resident, the bound is {:.0%}",
    Symptom.CPU_USED: "CPU use never fell below {:.0%} of the cores, the bound is {:.0%}",
    Symptom.BACKLOG_GROWS: "the backlog grew in every sample, by {:,.0f} records in all",
    Symptom.FORCED: "asked for without a symptom",
}
"""What a rule saw: measured value and bound are filled in."""


def proposal_of(held: HeldSize, decision: Sizing, overrides: Overrides) -> Scale | Resize:
    """The decision as a proposal; only what changes is named."""
    reason = reason_of(held, decision, overrides.by)
    figures = {"measured": decision.measured, "bound": decision.bound}
    expected = ExpectedEffect(_EXPECTED[decision.rule], _known(figures))
    if decision.after.parallelism != held.parallelism:
        return Scale({EXECUTORS: decision.after.parallelism}, reason, expected)
    return Resize(
        spark_settings(held, decision.after), reason, expected, before=spark_settings(decision.after, held)
    )


def with_notes(proposal: Scale | Resize, notes: tuple[str, ...]) -> Scale | Resize:
    """The proposal with what the resizer made of it."""
    return replace(proposal, reason="; ".join((proposal.reason, *notes))) if notes else proposal


def spark_settings(before: HeldSize, after: HeldSize) -> dict[str, str]:
    """The Spark settings in which two sizes differ."""
    settings: dict[str, str] = {}
    if after.heap_bytes != before.heap_bytes:
        settings["spark.executor.memory"] = mebibytes(after.heap_bytes)
    if after.overhead_bytes != before.overhead_bytes:
        settings["spark.executor.memoryOverhead"] = mebibytes(after.overhead_bytes)
    if after.memory_fraction != before.memory_fraction:
        settings["spark.memory.fraction"] = f"{after.memory_fraction:.2g}"
    if after.cores != before.cores:
        settings["spark.executor.cores"] = str(after.cores)
    if after.task_cpus != before.task_cpus:
        settings["spark.task.cpus"] = str(after.task_cpus)
    if _differs(after.driver_heap_bytes, before.driver_heap_bytes):
        settings["spark.driver.memory"] = mebibytes(after.driver_heap_bytes)
    return settings


def reason_of(held: HeldSize, decision: Sizing, by: str = "") -> str:
    """Which rule decided, what it saw, from where to where it goes, and who forced it."""
    rule = f"P{int(decision.rule)} ({NAMES[decision.rule]})"
    forced = f"; forced by {by or 'an operator'}" if decision.symptom is Symptom.FORCED else ""
    return f"{rule}: {_seen(decision)}; {_change(held, decision.after)}{forced}"


def mebibytes(size: float) -> str:
    """A size as Spark's memory settings take it."""
    return f"{math.ceil(size / MEBIBYTE)}m"


def _seen(decision: Sizing) -> str:
    if decision.symptom not in _SIGNS:
        return _unused(decision)
    spilled = mebibytes(decision.measured) if decision.symptom is Symptom.SPILL else ""
    return _SIGNS[decision.symptom].format(decision.measured, decision.bound, spilled=spilled)


def _unused(decision: Sizing) -> str:
    measured, bound = decision.measured, decision.bound
    if decision.rule in (Rule.HEAP_DOWN, Rule.MEMORY_DOWN):
        what = (
            "committed heap" if decision.rule is Rule.HEAP_DOWN else "memory likely resident beside the heap"
        )
        return f"the largest {what} was {mebibytes(measured)} of {mebibytes(bound)}"
    if decision.rule is Rule.CPU_DOWN:
        return f"the largest CPU use was {measured:.2g} of {bound:.0f} cores"
    return f"nothing waits, and the largest need was {measured:.0f} of {bound:.0f}"


def _change(held: HeldSize, after: HeldSize) -> str:
    if after.parallelism != held.parallelism:
        return f"parallelism {held.parallelism} → {after.parallelism}"
    old = spark_settings(after, held)
    return ", ".join(f"{key} {old[key]} → {new}" for key, new in spark_settings(held, after).items())


def _differs(one: float, other: float) -> bool:
    return not (one == other or (math.isnan(one) and math.isnan(other)))


def _known(figures: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in figures.items() if math.isfinite(value)}
