"""The status of a pipeline as metrics read one: each function stands where an application has a query."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_SAME = ("observed_per_second", "backlog_records", "batch_seconds", "latency_seconds")


def tell_as_application(status: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the metrics of an application are read from; what a pipeline does not know is left out.

    A status may come from another version, over the control socket.
    """
    told = status.get("functions")
    functions = {
        str(name): one
        for name, one in (told.items() if isinstance(told, Mapping) else ())
        if isinstance(one, Mapping)
    }
    name = str(status.get("pipeline", ""))
    return {
        **{key: status.get(key) for key in ("policy", "mode", "now", "totals", "heartbeat")},
        "application": str(status.get("application") or name),
        "name": name,
        "queries": [_tell_function(function, one) for function, one in functions.items()],
        "functions": functions,
    }


def _tell_function(name: str, function: Mapping[str, Any]) -> dict[str, Any]:
    same = {key: function.get(key) for key in _SAME}
    return {"name": name, "offered_per_second": function.get("arrival_per_second"), **same}
