"""Make a trace for Perfetto, in Chrome's JSON: a track for each worker, arrows, one path on top."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import orjson

from penstock.diagnose.diagnosis import Diagnosis, Drawing
from penstock.diagnose.trace.events import Activity
from penstock.errors import BadInput

MOST_EVENTS = 500_000
PATH_TRACK = "one critical path, drawn at random"

Fields = dict[str, Any]


def build_perfetto_trace(diagnoses: Sequence[Diagnosis]) -> Fields:
    """Return the JSON object that Perfetto opens, with a process for each application.

    An activity on a critical path has its share, and "(critical)" in its name, which gives it its own colour.
    """
    tracks = [_make_tracks(number, one) for number, one in enumerate(diagnoses, start=1)]
    return {
        "displayTimeUnit": "ms",
        "traceEvents": [event for each in tracks for event in each.draw_events()],
    }


def render_perfetto(diagnoses: Sequence[Diagnosis]) -> bytes:
    """Return the content of a file for Perfetto."""
    return orjson.dumps(build_perfetto_trace(diagnoses))


def _make_tracks(number: int, diagnosis: Diagnosis) -> _Tracks:
    name = diagnosis.name or diagnosis.application
    if diagnosis.drawing is None:
        raise BadInput(
            f"--perfetto: {name} does not fit in memory at once; --from and --to take a part of it"
        )
    return _Tracks(number, name, diagnosis.drawing)


@dataclass(frozen=True, slots=True)
class _Tracks:
    """The tracks of one application."""

    process: int
    name: str
    drawing: Drawing

    def draw_events(self) -> Iterator[Fields]:
        window, workers = self.drawing.critical.window, self.drawing.graph.trace.workers
        drawn = range(window.low, min(window.high, window.low + MOST_EVENTS))
        left_out = window.high - drawn.stop
        note = f" (the last {left_out} events are left out)" if left_out else ""
        yield self._describe("process_name", 0, name=self.name + note)
        yield from self._draw_track(0, PATH_TRACK)
        for number, worker in enumerate(workers, start=1):
            yield from self._draw_track(number, worker)
        yield from self._draw_path(drawn)
        for event in drawn:
            yield from self._draw_edge(event)
            yield from self._draw_arrow(event)

    def _draw_track(self, number: int, name: str) -> Iterable[Fields]:
        yield self._describe("thread_name", number, name=name)
        yield self._describe("thread_sort_index", number, sort_index=number)

    def _describe(self, what: str, track: int, **arguments: object) -> Fields:
        return {"ph": "M", "pid": self.process, "tid": track, "name": what, "args": arguments}

    def _draw_slice(self, track: int, before: int, event: int, name: str, **arguments: object) -> Fields:
        times = self.drawing.graph.trace.time_us
        begins = max(int(times[before]), self.drawing.critical.window.start_us)
        return {
            "ph": "X", "pid": self.process, "tid": track, "ts": begins, "dur": int(times[event]) - begins,
            "name": name, "args": arguments,
        }  # fmt: skip

    def _draw_path(self, drawn: range) -> Iterator[Fields]:
        """Yield the edges of the drawn path, one after the other on a track of their own."""
        graph, trace = self.drawing.graph, self.drawing.graph.trace
        for event, before in pairwise(np.asarray(self.drawing.path_events).tolist()):
            if event >= drawn.stop or trace.time_us[event] == trace.time_us[before]:
                continue
            worker, is_message = trace.workers[trace.worker[event]], int(graph.previous[event]) != before
            doing = Activity(trace.activity[event]).label if is_message else self._name_activity(event)
            where = f"{trace.workers[trace.worker[before]]} → {worker}" if is_message else worker
            yield self._draw_slice(0, before, event, f"{doing}, {where}") | {"cat": "critical path"}

    def _name_activity(self, event: int) -> str:
        """Return what the worker did before this event."""
        graph = self.drawing.graph
        phase = graph.trace.works[graph.edge_work[event]].phase
        return phase or Activity(graph.edge_activity[event]).label

    def _draw_edge(self, event: int) -> Iterator[Fields]:
        graph, trace = self.drawing.graph, self.drawing.graph.trace
        before, kind = int(graph.previous[event]), Activity(graph.edge_activity[event])
        if before < 0 or trace.time_us[event] == trace.time_us[before] or kind == Activity.WAITING:
            return
        share = float(self.drawing.critical.local[event - self.drawing.critical.window.low])
        name = f"{self._name_activity(event)} (critical)" if share > 0 else self._name_activity(event)
        operator = trace.works[graph.edge_work[event]].operator
        told = {"operator": operator, "activity": kind.label, "critical participation": share}
        drawn = self._draw_slice(int(trace.worker[event]) + 1, before, event, name, **told)
        yield drawn | {"cat": "critical" if share > 0 else kind.label}

    def _draw_arrow(self, event: int) -> Iterator[Fields]:
        graph, trace = self.drawing.graph, self.drawing.graph.trace
        source = int(graph.source[event])
        share = float(self.drawing.critical.message[event - self.drawing.critical.window.low])
        if source < 0 or share <= 0:
            return
        # an arrow's id must be an integer, different in every process
        name, number = Activity(trace.activity[event]).label, self.process << 32 | event
        shared = {"pid": self.process, "cat": "critical message", "name": name, "id": number}
        for phase, end in (({"ph": "s"}, source), ({"ph": "f", "bp": "e"}, event)):
            yield shared | phase | {"tid": int(trace.worker[end]) + 1, "ts": int(trace.time_us[end])}
