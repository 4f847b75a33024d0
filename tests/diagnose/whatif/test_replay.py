"""The replay against a plain search for the next event: stages have all slots, share them and lose them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.diagnose.whatif.replay import replay
from penstock.diagnose.whatif.task_graph import Anchor, JobPlan, SlotChange, StagePlan, TaskGraph

INSTANT = 1 / 1024
"""Events of different instants never meet at one time: tasks take whole seconds."""


def build_graph(jobs, changes):
    """Return jobs of one stage each: (start, seconds of its tasks); changes are (time, slots)."""
    plans = [
        JobPlan(
            number,
            Anchor(None, at_end=False, delay=start + number * INSTANT),
            0.0,
            (StagePlan((number, 0), frozenset(), 0.0, np.array(tasks, dtype=float), np.arange(len(tasks))),),
            0.0,
        )
        for number, (start, tasks) in enumerate(jobs)
    ]
    moments = [
        SlotChange(Anchor(None, at_end=False, delay=at + (len(jobs) + number) * INSTANT), slots)
        for number, (at, slots) in enumerate(changes)
    ]
    return TaskGraph(tuple(plans), max(1, sum(n for _, n in changes)), 0.0, 0.0, changes=tuple(moments))


def find_ends(graph):
    """Return when each job ends, by looking for the next event among all."""
    events = [(one.anchor.delay, one) for one in (*graph.jobs, *graph.changes)]
    waiting, running, free, ends = [], [], 0, {}
    while events or running:
        now = min([at for at, _ in events] + [end for end, _ in running])
        for at, event in [one for one in events if one[0] == now]:
            events.remove((at, event))
            if isinstance(event, SlotChange):
                free += event.slots
            else:
                waiting += [(seconds, event.job) for seconds in event.stages[0].tasks]
        for end, job in [one for one in running if one[0] == now]:
            running.remove((end, job))
            free, ends[job] = free + 1, now
        while free > 0 and waiting:
            seconds, job = waiting.pop(0)
            running.append((now + seconds, job))
            free -= 1
    return ends


tasks = st.lists(st.integers(1, 9), min_size=1, max_size=60)
slot_changes = st.lists(st.tuples(st.integers(0, 40), st.integers(-1, 3)), max_size=5)


@given(
    st.lists(st.tuples(st.integers(0, 60), tasks), min_size=1, max_size=3), st.integers(3, 8), slot_changes
)
@example([(0, [1] * 60)], 3, [(5, 3), (6, -1), (7, -1), (8, -1)])
def test_jobs_end_when_a_plain_search_says(jobs, slots, changes):
    changes = changes[:2] if sum(n < 0 for _, n in changes) > 2 else changes
    graph = build_graph(jobs, [(0, slots), *changes])
    ends, found = find_ends(graph), replay(graph)
    assert found.seconds == pytest.approx(max(ends.values()))
    starts = {job.job: job.anchor.delay for job in graph.jobs}
    assert found.job_seconds == pytest.approx({job: end - starts[job] for job, end in ends.items()})
