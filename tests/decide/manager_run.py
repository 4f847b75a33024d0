"""A manager with a stepped clock, for its tests."""

from __future__ import annotations

from penstock.dataflow.window import EXECUTORS
from penstock.decide.goals import SizeBounds
from penstock.decide.manager.manager import Accepted, ManagerSettings, ScalingManager
from penstock.decide.outcome import Status
from tests.decide.situations import INTERVAL, outcome, window

EAGER = ManagerSettings(warm_up_intervals=0, activation_intervals=1, scale_down_delay=0.0)


class Run:
    """A manager with a stepped clock: one policy interval a step."""

    def __init__(self, settings: ManagerSettings = EAGER, held=4, bounds: SizeBounds | None = None) -> None:
        self.manager = ScalingManager(settings, bounds)
        self.now = 1000.0
        self.held = held
        self.backlog = 0.0

    def step(self, answer, **load):
        self.now += INTERVAL
        offered, observed = load.get("offered", 1000.0), load.get("observed", load.get("offered", 1000.0))
        self.backlog = max(0.0, self.backlog + (offered - observed) * INTERVAL)
        return self.manager.judge(self.now, window(self.now, self.held, backlog=self.backlog, **load), answer)

    def perform(self, verdict, status=Status.DONE, observed=None) -> None:
        assert isinstance(verdict, Accepted)
        self.manager.action_started(self.now, verdict.action)
        ended = outcome(verdict.action, status, observed)
        self.manager.action_ended(self.now, verdict.action, ended)
        if status is not Status.FAILED:
            self.held = ended.observed[EXECUTORS] if isinstance(self.held, int) else ended.observed


def size(verdict) -> int:
    assert isinstance(verdict, Accepted), verdict
    return verdict.action.parallelism[EXECUTORS]
