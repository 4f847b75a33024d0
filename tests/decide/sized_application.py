"""An application whose executors report what they use, with Sage to size it."""

from __future__ import annotations

import dataclasses

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import ExecutorUse, SizingFacts
from penstock.decide.limits import WithinLimits
from penstock.decide.manager.restarts import RestartJudge
from penstock.decide.policy import Hold, Proposal
from penstock.decide.sage.overrides import Said
from penstock.decide.sage.policy import SagePolicy
from penstock.decide.sage.resizer import Limits
from penstock.decide.sage.settings import SageSettings
from penstock.decide.surroundings import Surroundings
from tests.fakes import FixedPolicy, a_query, a_scale, a_window

GIB, MIB = 1024.0**3, 1024.0**2
CONF = {"spark.executor.memory": "4g", "spark.executor.memoryOverhead": "1g", "spark.driver.memory": "2g"}
CALM = ExecutorUse(
    heap_used_bytes=2 * GIB,
    heap_committed_bytes=3.8 * GIB,
    resident_bytes=4.5 * GIB,
    cpu_cores=1.0,
    gc_seconds=0.1,
    gc_count=1.0,
    spilled_bytes=0.0,
)
WIDE = Limits(16, 64 * GIB, 1000, 1000 * GIB)


class Application:
    """Two executors that report; `run` lets windows pass and gives the last answer."""

    def __init__(
        self,
        limits: Limits = WIDE,
        conf: dict[str, str] | None = None,
        needed: int = 2,
        settings: SageSettings | None = None,
        least: int = 1,
        restarts: RestartJudge | None = None,
    ) -> None:
        """Its first batch has ended more than a minute ago."""
        self.said, self.conf = Said(), conf or CONF
        self.later: list[Said] = []
        stuck = NotReady("no batch finished in the window", "a finished batch")
        needs = FixedPolicy(Hold("right") if needed == 2 else a_scale(needed) if needed else stuck)
        told = WithinLimits(needs, least=least)
        around = Surroundings(said=self.speak, restarts=restarts)
        self.policy = SagePolicy(told, settings or SageSettings(), limits=limits, around=around)
        self.backlog_growth = 0.0
        self.now = -70.0
        self.run(1)
        self.now = 0.0

    def speak(self) -> Said:
        """Say the next of several words, or the last one again."""
        if self.later:
            self.said = self.later.pop(0)
        return self.said

    def run(
        self, windows: int = 8, facts: dict[str, float] | None = None, executors: int = 2, **use: float
    ) -> Proposal | NotReady:
        answer: Proposal | NotReady = NotReady("nothing yet", "a window")
        for _ in range(windows):
            self.now += 10.0
            backlog = 10.0 + self.backlog_growth * max(self.now, 0.0)
            query = a_query(self.now - 10, backlog=backlog)
            window = a_window(self.now, executors, queries=(query,))
            busy = dataclasses.replace(CALM, **use)
            uses = (busy, dataclasses.replace(busy, cpu_cores=0.0))[:executors]
            states = tuple(
                dataclasses.replace(state, use=one) for state, one in zip(window.executors, uses, strict=True)
            )
            told = SizingFacts(self.conf, **{"driver_heap_used_bytes": GIB, **(facts or {})})
            answer = self.policy.propose(dataclasses.replace(window, executors=states, sizing=told))
        return answer
