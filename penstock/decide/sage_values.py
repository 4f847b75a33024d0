"""Values that an operator sets with a pin: how they are written, and the size that follows from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from penstock.decide.held_size import size_in_bytes
from penstock.decide.sage_metrics import HeldSize, Parameter
from penstock.decide.sage_rules import whole_mebibytes
from penstock.decide.sage_settings import SageSettings
from penstock.decide.sage_words import mebibytes
from penstock.errors import BadInput

_HEAPS = (Parameter.HEAP, Parameter.DRIVER_HEAP)


def value_of(parameter: Parameter, text: str, place: str) -> float:
    """A value as Spark can be told it, so that it is known again once it is in effect; or a clear error."""
    if parameter is Parameter.PARALLELISM:
        raise BadInput(f"{place}: parallelism is set by min_executors and max_executors, a pin only keeps it")
    if parameter is Parameter.CPU:
        return _cores(text, place)
    if parameter is Parameter.MEMORY_FRACTION:
        return _share(text, place)
    size = whole_mebibytes(size_in_bytes(text, place))
    least = SageSettings().least_heap_bytes if parameter in _HEAPS else 1.0
    if size < least:
        raise BadInput(f"{place}: {text!r} is too little: Spark starts with {mebibytes(least)} at least")
    return size


def written(parameter: Parameter, value: float) -> str:
    """The value as operators and Spark write it."""
    if parameter is Parameter.CPU:
        return str(int(value))
    return f"{value:.2g}" if parameter is Parameter.MEMORY_FRACTION else mebibytes(value)


def with_values(held: HeldSize, values: Mapping[Parameter, float]) -> HeldSize:
    """The size with these values; slots stay as many."""
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


def _cores(text: str, place: str) -> float:
    if not text.isdecimal() or not 1 <= int(text) <= 1024:
        raise BadInput(f"{place}: {text!r} is not a number of cores for each task")
    return float(text)


def _share(text: str, place: str) -> float:
    try:
        share = round(float(text), 2)
    except ValueError:
        share = -1.0
    if not 0.05 <= share <= 0.95:
        raise BadInput(f"{place}: {text!r} is not a share of the heap from 0.05 to 0.95")
    return share
