"""The growth that answers costs which the policy does not see, and when it would not help."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from penstock.dataflow.metrics import BatchExecution, StageExecution
from penstock.dataflow.window import EXECUTORS, SlotWindow
from penstock.decide.manager.corrections import correct_missed_costs
from penstock.decide.manager.guardrails import Situation
from penstock.decide.manager.history import ManagerState, measure_load
from penstock.decide.policy import Scale
from tests.decide.situations import scale, window


def run_behind(tasks: list[float], batch_seconds: float = 60.0, held: int = 3) -> Scale:
    """Half of what is offered is read, by batches of one stage with these task seconds."""
    waited = np.zeros(len(tasks))
    stage = StageExecution("read", waited + 100, waited, np.array(tasks), waited, max(tasks, default=0.0))
    batch = BatchExecution(1, 0.0, batch_seconds, held, 1.0, (stage,) if tasks else ())
    windows = []
    for end in (100.0, 110.0):
        seen = window(end, held, observed=500.0, backlog=50 * end)
        assert isinstance(seen, SlotWindow)
        windows.append(replace(seen, queries=(replace(seen.queries[0], batches=(batch,)),)))
    state = ManagerState(measured=tuple(map(measure_load, windows)))
    situation = Situation(110.0, windows[-1], state, behind=True)
    return correct_missed_costs(scale(held), situation, 1.1, 0.2)


@pytest.mark.parametrize(
    ("tasks", "size"),
    [
        ([55.0, 50.0, 58.0], 6),
        ([58.0, 6.0, 6.0], 3),
        ([4.0, 4.0, 4.0], 3),
        ([], 6),
    ],
    ids=["all slots work", "one task is waited for", "the driver is waited for", "nothing is known"],
)
def test_slots_that_are_idle_while_a_batch_runs_are_not_added_to(tasks: list[float], size: int):
    assert run_behind(tasks).parallelism == {EXECUTORS: size}
