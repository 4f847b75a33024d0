"""Sizes as Spark's settings write them, and Sage's decisions as proposals with the reason in plain words.

Decisions come from files and topics, the settings that worked from the journal, and values from operators.
Others may have written there, and what passes here ends on a driver's command line: only the keys that Sage
writes pass, with bounded values.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from penstock.dataflow.window import EXECUTORS, ApplicationWindow
from penstock.decide.policy import ExpectedEffect, Resize, Scale
from penstock.decide.sage.metrics import HeldSize, Overrides, Parameter, Rule, Sizing, Symptom
from penstock.decide.sage.rules import whole_mebibytes
from penstock.decide.sage.settings import LEAST_HEAP_BYTES, MEBIBYTE
from penstock.errors import BadInput
from penstock.units.fields import parse_spark_size
from penstock.units.figures import spark_mebibytes

_FACTOR, _LEAST = 0.1, 384 * MEBIBYTE
"""Spark's own overhead where none is set: a tenth of the heap, 384 MiB at least."""
SIZING_KEYS = (
    "spark.executor.memory",
    "spark.executor.memoryOverhead",
    "spark.executor.memoryOverheadFactor",
    "spark.memory.fraction",
    "spark.executor.cores",
    "spark.task.cpus",
    "spark.driver.memory",
)
"""The settings of Spark that say how large an application is."""
MOST_BYTES = 32 * 1024.0**4
"""More memory than one host has."""
MOST_CORES = 1024
LEAST_SHARE, MOST_SHARE = 0.05, 0.95
_SIZE = re.compile(r"([0-9]{1,15})(b|[kmgt]b?)?")
_COUNT = re.compile(r"[0-9]{1,4}")
_SHARE = re.compile(r"0?\.[0-9]{1,6}")
_SHOWN = 80
_HEAPS = (Parameter.HEAP, Parameter.DRIVER_HEAP)


def held_from(conf: Mapping[str, str], window: ApplicationWindow) -> HeldSize:
    """Return the size of an application whose executors are those of the window."""
    heap, overhead = read_executor_memory(conf)
    task_cpus = max(1, int(conf.get("spark.task.cpus", 1)))
    # Spark tells slots, which are cores for task_cpus each
    slots = max((executor.cores for executor in window.executors), default=1)
    return HeldSize(
        parallelism=max(1, window.parallelism.get(EXECUTORS, 1)),
        heap_bytes=heap,
        overhead_bytes=overhead,
        memory_fraction=float(conf.get("spark.memory.fraction", 0.6)),
        cores=slots * task_cpus,
        task_cpus=task_cpus,
        driver_heap_bytes=size_in_bytes(conf.get("spark.driver.memory", "1g"), "spark.driver.memory"),
    )


def read_executor_memory(conf: Mapping[str, str]) -> tuple[float, float]:
    """Return the bytes of an executor's heap, and of what it has beside it."""
    heap = size_in_bytes(conf.get("spark.executor.memory", "1g"), "spark.executor.memory")
    factor = float(conf.get("spark.executor.memoryOverheadFactor", _FACTOR))
    given = conf.get("spark.executor.memoryOverhead")
    return heap, size_in_bytes(given, "spark.executor.memoryOverhead") if given else max(
        heap * factor, _LEAST
    )


def size_in_bytes(text: str, key: str) -> float:
    """Read a size of Spark's configuration; an error names the key."""
    try:
        return parse_spark_size(text)
    except ValueError as error:
        raise BadInput(f"{key}: {error}") from None


def sizing_settings(given: object) -> dict[str, str]:
    """Return the settings as Spark is told them; BadInput names a key or value that no sizing writes."""
    if not isinstance(given, Mapping):
        raise BadInput(f"{_quote(given)} is not a set of Spark settings")
    return {str(key): _canonical(key, value) for key, value in given.items()}


def _canonical(key: object, value: object) -> str:
    write = _KEYS.get(key) if isinstance(key, str) else None
    if write is None:
        raise BadInput(f"{_quote(key)}={_quote(value)}: a restart may set only {', '.join(_KEYS)}")
    found = write(str(value).strip().lower())
    if found is None:
        raise BadInput(f"{key}: {_quote(value)} is not a value, or not one that can be")
    return found


def _write_heap(text: str) -> str | None:
    return _write_size(text, LEAST_HEAP_BYTES)


def _write_size(text: str, least: float = 0.0) -> str | None:
    match = _SIZE.fullmatch(text)
    if match is None:
        return None
    size = f"{int(match[1])}{(match[2] or 'm')[0]}"
    return size if least <= size_in_bytes(size, "") <= MOST_BYTES else None


def _write_count(text: str) -> str | None:
    return str(int(text)) if _COUNT.fullmatch(text) and 1 <= int(text) <= MOST_CORES else None


def _write_share(text: str) -> str | None:
    return f"{float(text):g}" if _SHARE.fullmatch(text) and LEAST_SHARE <= float(text) <= MOST_SHARE else None


def _quote(given: object) -> str:
    """Quote a value without control characters, and short: it goes into a line of a log."""
    return repr(str(given)[:_SHOWN])


_KEYS: Mapping[str, Callable[[str], str | None]] = {
    "spark.executor.memory": _write_heap,
    "spark.executor.memoryOverhead": _write_size,
    "spark.memory.fraction": _write_share,
    "spark.executor.cores": _write_count,
    "spark.task.cpus": _write_count,
    "spark.driver.memory": _write_heap,
}
"""The keys that `words.spark_settings` writes."""


def parse_value(parameter: Parameter, text: str, place: str) -> float:
    """Parse a value that an operator sets, rounded as Spark is told it: it is known again once in effect."""
    if parameter is Parameter.PARALLELISM:
        raise BadInput(f"{place}: parallelism is set by min_executors and max_executors, a pin only keeps it")
    if parameter is Parameter.CPU:
        return _parse_cores(text, place)
    if parameter is Parameter.MEMORY_FRACTION:
        return _parse_share(text, place)
    size = float(whole_mebibytes(size_in_bytes(text, place)))
    least = LEAST_HEAP_BYTES if parameter in _HEAPS else 1.0
    if size < least:
        raise BadInput(
            f"{place}: {text!r} is too little: Spark starts with {spark_mebibytes(least)} at least"
        )
    if size > MOST_BYTES:
        raise BadInput(f"{place}: {text!r} is too much: {spark_mebibytes(MOST_BYTES)} is the most")
    return size


def write_value(parameter: Parameter, value: float) -> str:
    """Return the value as operators and Spark write it."""
    if parameter is Parameter.CPU:
        return str(int(value))
    return f"{value:.2g}" if parameter is Parameter.MEMORY_FRACTION else spark_mebibytes(value)


def with_values(held: HeldSize, values: Mapping[Parameter, float]) -> HeldSize:
    """Return the size with these values; slots stay as many."""
    cpus = int(values.get(Parameter.CPU, held.task_cpus))
    return replace(
        held,
        heap_bytes=values.get(Parameter.HEAP, held.heap_bytes),
        overhead_bytes=values.get(Parameter.OVERHEAD, held.overhead_bytes),
        memory_fraction=values.get(Parameter.MEMORY_FRACTION, held.memory_fraction),
        cores=held.slots * cpus if cpus != held.task_cpus else held.cores,
        task_cpus=cpus,
        driver_heap_bytes=values.get(Parameter.DRIVER_HEAP, held.driver_heap_bytes),
    )


def _parse_cores(text: str, place: str) -> float:
    if not text.isdecimal() or not 1 <= int(text) <= MOST_CORES:
        raise BadInput(f"{place}: {text!r} is not a number of cores for each task")
    return float(text)


def _parse_share(text: str, place: str) -> float:
    try:
        share = round(float(text), 2)
    except ValueError:
        share = -1.0
    if not LEAST_SHARE <= share <= MOST_SHARE:
        raise BadInput(f"{place}: {text!r} is not a share of the heap from {LEAST_SHARE} to {MOST_SHARE}")
    return share


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
"""Symptom → the words for it; measured value and bound are filled in."""


def make_proposal(held: HeldSize, decision: Sizing, overrides: Overrides) -> Scale | Resize:
    """Return the decision as a proposal; only what changes is named."""
    reason = explain_decision(held, decision, overrides.by)
    figures = {"measured": decision.measured, "bound": decision.bound}
    known = {name: value for name, value in figures.items() if math.isfinite(value)}
    expected = ExpectedEffect(_EXPECTED[decision.rule], known)
    if decision.after.parallelism != held.parallelism:
        return Scale({EXECUTORS: decision.after.parallelism}, reason, expected)
    before = spark_settings(decision.after, held)
    return Resize(spark_settings(held, decision.after), reason, expected, before)


def add_notes(proposal: Scale | Resize, notes: tuple[str, ...]) -> Scale | Resize:
    """Return the proposal with what the resizer made of it."""
    return replace(proposal, reason="; ".join((proposal.reason, *notes))) if notes else proposal


def spark_settings(before: HeldSize, after: HeldSize) -> dict[str, str]:
    """Return the Spark settings in which two sizes differ."""
    return {
        key: write(getattr(after, name))
        for key, (name, write) in _WRITTEN.items()
        if _differs(getattr(after, name), getattr(before, name))
    }


_WRITTEN: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "spark.executor.memory": ("heap_bytes", spark_mebibytes),
    "spark.executor.memoryOverhead": ("overhead_bytes", spark_mebibytes),
    "spark.memory.fraction": ("memory_fraction", "{:.2g}".format),
    "spark.executor.cores": ("cores", str),
    "spark.task.cpus": ("task_cpus", str),
    "spark.driver.memory": ("driver_heap_bytes", spark_mebibytes),
}
"""Spark's key → what it says of a size, and how it is written."""


def explain_decision(held: HeldSize, decision: Sizing, by: str = "", changes: str = "") -> str:
    """Say which rule decided, what it saw, from where to where it goes, and who forced it.

    `changes` says from where to where, where a size of the whole application does not.
    """
    rule = f"P{int(decision.rule)} ({NAMES[decision.rule]})"
    forced = f"; forced by {by or 'an operator'}" if decision.symptom is Symptom.FORCED else ""
    return f"{rule}: {_describe_symptom(decision)}; {changes or _list_changes(held, decision.after)}{forced}"


def _describe_symptom(decision: Sizing) -> str:
    if decision.symptom not in _SIGNS:
        return _describe_unused(decision)
    spilled = spark_mebibytes(decision.measured) if decision.symptom is Symptom.SPILL else ""
    return _SIGNS[decision.symptom].format(decision.measured, decision.bound, spilled=spilled)


def _describe_unused(decision: Sizing) -> str:
    measured, bound = decision.measured, decision.bound
    if decision.rule in (Rule.HEAP_DOWN, Rule.MEMORY_DOWN):
        heap = decision.rule is Rule.HEAP_DOWN
        what = "committed heap" if heap else "memory likely resident beside the heap"
        return f"the largest {what} was {spark_mebibytes(measured)} of {spark_mebibytes(bound)}"
    if decision.rule is Rule.CPU_DOWN:
        return f"the largest CPU use was {measured:.2g} of {bound:.0f} cores"
    return f"nothing waits, and the largest need was {measured:.0f} of {bound:.0f}"


def _list_changes(held: HeldSize, after: HeldSize) -> str:
    if after.parallelism != held.parallelism:
        return f"parallelism {held.parallelism} → {after.parallelism}"
    old = spark_settings(after, held)
    return ", ".join(f"{key} {old[key]} → {new}" for key, new in spark_settings(held, after).items())


def _differs(one: float, other: float) -> bool:
    return not (one == other or (math.isnan(one) and math.isnan(other)))
