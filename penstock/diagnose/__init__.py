"""Diagnosis of an application's latency: activity graphs and their critical paths.

The functions named here take and return PySpark DataFrames; PySpark is imported when one of them is used.
"""

from __future__ import annotations

import importlib
from typing import Any

_PIPELINE = "penstock.diagnose.spark_pipeline"
_HOMES = {
    "event_summaries": _PIPELINE,
    "follow_summaries": "penstock.diagnose.spark_follow",
    "log_summaries": _PIPELINE,
    "path_frame": _PIPELINE,
    "trace_summaries": _PIPELINE,
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(_HOMES)
