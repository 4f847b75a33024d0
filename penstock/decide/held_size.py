"""What an application holds, from its Spark configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping

from penstock.dataflow.window import EXECUTORS, ApplicationWindow
from penstock.decide.sage_metrics import HeldSize
from penstock.errors import BadInput

MEBIBYTE = 1024.0**2
_UNITS = {"": MEBIBYTE, "b": 1.0, "k": 1024.0, "m": MEBIBYTE, "g": 1024.0**3, "t": 1024.0**4, "p": 1024.0**5}
_SIZE = re.compile(r"^(\d+(?:\.\d+)?)\s*([bkmgtp]?)b?$", re.IGNORECASE)
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
"""What of Spark's settings says how large an application is."""


def held_from(conf: Mapping[str, str], window: ApplicationWindow) -> HeldSize:
    """The size of an application whose executors are those of the window."""
    heap = size_in_bytes(conf.get("spark.executor.memory", "1g"), "spark.executor.memory")
    factor = float(conf.get("spark.executor.memoryOverheadFactor", _FACTOR))
    given = conf.get("spark.executor.memoryOverhead")
    overhead = size_in_bytes(given, "spark.executor.memoryOverhead") if given else max(heap * factor, _LEAST)
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


def size_in_bytes(text: str, key: str) -> float:
    """A size as Spark writes it; one without a unit is in MiB."""
    match = _SIZE.match(text.strip())
    if match is None:
        raise BadInput(f"{key}: {text!r} is not a size such as 4g or 512m")
    return float(match[1]) * _UNITS[match[2].lower()]
