"""DS2 and the manager together, at the default band: slots that have no tasks are given up."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.dataflow.graph import LogicalGraph
from penstock.dataflow.window import EXECUTORS, ExecutorState, SlotQuery, SlotWindow, SourceRate
from penstock.decide.ds2.slots import SharedSlots
from penstock.decide.manager.manager import Accepted, NothingToDo, Rejected, ScalingManager, Waiting
from penstock.decide.outcome import Outcome, Status
from penstock.settings.model import Settings
from penstock_lab.experiments.word_count.query import SETTINGS, TRIGGER_SECONDS
from tests.dataflow.synthetic_batches import TrueQuery, TrueStage

CORES = 3


def nine_tasks(noise: float = 0.0, seed: int = 1) -> TrueQuery:
    """The word count of the benchmark: nine tasks a stage, 4.5 slots busy at 60 sentences a second."""
    stages = (
        TrueStage("flatmap", 9, 0.15, 0.025, selectivity=20.0),
        TrueStage("count", 9, 0.15, 0.0025, selectivity=0.05),
        TrueStage("state", 3, 0.2, 0.0),
    )
    return TrueQuery(stages, 0.5, noise, 0.0, np.random.default_rng(seed))


class Application:
    """The query at a rate on executors that change as the manager accepts, a window of two batches a step."""

    def __init__(self, query: TrueQuery, executors: int, **changes: object) -> None:
        settings = Settings(**{**SETTINGS, **changes})
        self.interval = settings.manager.policy_interval
        self.policy, self.manager = (
            SharedSlots(settings.goals),
            ScalingManager(settings.manager, settings.bounds, settings.goals),
        )
        self.query, self.executors, self.now = query, executors, 0.0

    def step(self, rate: float) -> object:
        window = self._window(rate)
        verdict = self.manager.judge(self.now, window, self.policy.propose(window))
        if isinstance(verdict, Accepted):
            action, reached = verdict.action, verdict.action.parallelism
            self.manager.action_started(self.now, action)
            self.manager.action_ended(self.now, action, Outcome(Status.DONE, reached, reached, reached, 0.0))
            self.executors = reached[EXECUTORS]
        return verdict

    def sizes(self, rate: float, steps: int) -> list[int]:
        """Slots held after each step, repetitions left out."""
        held = []
        for _ in range(steps):
            self.step(rate)
            held.append(self.executors * CORES)
        return list(dict.fromkeys(held))

    def _window(self, rate: float) -> SlotWindow:
        start, self.now = self.now, self.now + self.interval
        graph = LogicalGraph(["flatmap", "count", "state"], [("flatmap", "count"), ("count", "state")])
        slots, records = self.executors * CORES, rate * TRIGGER_SECONDS
        first = round(start / TRIGGER_SECONDS)
        batches = tuple(
            self.query.run(first + number, start + number * TRIGGER_SECONDS, records, slots)
            for number in range(2)
        )
        source = {"flatmap": SourceRate(rate, rate, 0.0)}
        query = SlotQuery("q", "words", graph, source, batches, TRIGGER_SECONDS)
        held = tuple(ExecutorState(str(number), "host", CORES) for number in range(self.executors))
        return SlotWindow(
            "app",
            start,
            self.now,
            {EXECUTORS: self.executors},
            (query,),
            executors=held,
            slots_per_executor=CORES,
        )


def test_fifteen_slots_for_nine_tasks_become_nine_though_they_are_used_well():
    app = Application(nine_tasks(), 5)
    used = app.query.seconds(60 * TRIGGER_SECONDS, 15) / TRIGGER_SECONDS
    assert 0.6 < used < 0.8
    assert app.query.seconds(60 * TRIGGER_SECONDS, 9) == app.query.seconds(60 * TRIGGER_SECONDS, 15)
    assert app.sizes(60, steps=8) == [15, 9]


def _load(query: TrueQuery, rate: float, slots: int) -> float:
    fixed = query.seconds(0, slots)
    return (query.seconds(rate * TRIGGER_SECONDS, slots) - fixed) / (TRIGGER_SECONDS - fixed)


def test_what_shortens_batches_is_kept_within_the_band():
    # six slots would do with longer batches, yet nine are used well enough for this band
    app, rate = Application(nine_tasks(), 3, utilisation_low=0.3), 33.0
    nine, six = (_load(app.query, rate, slots) for slots in (9, 6))
    assert 0.3 <= nine < six <= 0.8
    verdicts = [app.step(rate) for _ in range(6)]
    assert app.executors == 3
    assert isinstance(verdicts[0], Waiting)
    rejected = [verdict for verdict in verdicts if isinstance(verdict, Rejected)]
    assert {verdict.guardrail for verdict in rejected} == {"utilisation-band"}


@pytest.mark.parametrize("seed", range(6))
def test_the_sizes_of_the_benchmark_follow_at_the_default_band(seed):
    assert "utilisation_low" not in SETTINGS
    over = Application(nine_tasks(noise=0.1, seed=seed), 5)
    assert over.sizes(60, steps=12) == [15, 9]
    assert isinstance(over.step(60), NothingToDo | Rejected)
    # half the load leaves nine slots half idle: that is below the band
    assert over.sizes(30, steps=12) == [9, 6]
