"""The newest use of executors against their limits, and the recommended sizes, for whoever asks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import ApplicationWindow, ExecutorState
from penstock.decide.policy import Resize
from penstock.decide.sage.sizes import held_from
from penstock.decide.verdict import Accepted, Rejected, Verdict
from penstock.errors import BadInput
from penstock.runtime.status import drop_unknown

if TYPE_CHECKING:
    from penstock.runtime.loop import Cycle

MOST_LOSSES = 20

Plain = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Recommended:
    at: float
    resize: Resize
    verdict: Verdict | None


class SizingBoard:
    """Written by the loop's thread, read by any: what it holds is replaced, never changed."""

    def __init__(self) -> None:
        self._window: ApplicationWindow | None = None
        self._gc_seconds: dict[str, float] = {}
        self._gc_shares: dict[str, float] = {}
        self._recommended: _Recommended | None = None

    def notice(self, cycle: Cycle) -> None:
        """Keep what a cycle has seen and proposed; what was recommended stands until something else is."""
        if cycle.window is not None:
            self._gc_shares = self._measure_collections(cycle.window)
            self._window = cycle.window
        if isinstance(cycle.answer, Resize):
            self._recommended = _Recommended(cycle.at, cycle.answer, cycle.verdict)
        elif cycle.answer is not None and not isinstance(cycle.answer, NotReady):
            self._recommended = None

    def plain(self) -> Plain:
        """Return it as plain data; without executors before the first window."""
        window = self._window
        if window is None:
            return {
                "at": None,
                "executors": [],
                "limits": None,
                "driver": None,
                "losses": [],
                "recommended": None,
            }
        shares = self._gc_shares
        return {
            "at": window.end,
            "executors": [_describe(one, shares.get(one.executor_id)) for one in window.executors],
            "limits": _find_limits(window),
            "driver": _describe_driver(window),
            "losses": [
                {"executor": one.executor, "host": one.host, "at": one.at, "out_of_heap": one.out_of_heap}
                for one in window.memory_losses[-MOST_LOSSES:]
            ],
            "recommended": _describe_recommended(self._recommended),
        }

    def _measure_collections(self, window: ApplicationWindow) -> dict[str, float]:
        """Return the share of the window that each executor collected garbage: Spark tells sums."""
        before, length = self._gc_seconds, window.end - window.start
        self._gc_seconds = {one.executor_id: one.gc_seconds for one in window.executors}
        return {
            name: max(0.0, total - before[name]) / length
            for name, total in self._gc_seconds.items()
            if name in before and length > 0
        }


def _describe(executor: ExecutorState, gc_share: float | None) -> Plain:
    use = executor.use
    return {
        "executor": executor.executor_id,
        "host": executor.host,
        "slots": executor.cores,
        "active_tasks": executor.active_tasks,
        "heap_peak_bytes": executor.heap_used_bytes or None,
        "cached_bytes": executor.cached_bytes,
        "gc_share": gc_share,
        "heap_used_bytes": drop_unknown(use.heap_used_bytes) if use else None,
        "heap_committed_bytes": drop_unknown(use.heap_committed_bytes) if use else None,
        "resident_bytes": drop_unknown(use.resident_bytes) if use else None,
        "cpu_cores": drop_unknown(use.cpu_cores) if use else None,
        "spilled_bytes": drop_unknown(use.spilled_bytes) if use else None,
    }


def _find_limits(window: ApplicationWindow) -> Plain | None:
    """Return what one executor is given; None where nobody looked at the settings."""
    if window.sizing is None:
        return None
    try:
        held = held_from(window.sizing.settings, window)
    except (BadInput, ValueError):
        return None
    return {
        "heap_bytes": held.heap_bytes,
        "overhead_bytes": held.overhead_bytes,
        "cores": held.cores,
        "task_cpus": held.task_cpus,
        "driver_heap_bytes": held.driver_heap_bytes,
    }


def _describe_driver(window: ApplicationWindow) -> Plain | None:
    if window.sizing is None:
        return None
    return {"heap_used_bytes": drop_unknown(window.sizing.driver_heap_used_bytes)}


def _describe_recommended(known: _Recommended | None) -> Plain | None:
    if known is None:
        return None
    verdict = known.verdict
    return {
        "at": known.at,
        "settings": dict(known.resize.settings),
        "before": dict(known.resize.before),
        "reason": known.resize.reason,
        "expected": known.resize.expected.summary,
        "accepted": isinstance(verdict, Accepted),
        "guardrail": verdict.guardrail if isinstance(verdict, Rejected) else None,
        "verdict": verdict.reason if verdict is not None else "",
    }
