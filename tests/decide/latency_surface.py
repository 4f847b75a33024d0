"""An application in virtual time whose latency depends on its parallelism in a known way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

from penstock.dataflow.graph import LogicalGraph
from penstock.dataflow.metrics import InstanceMetrics, MetricWindow
from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import OperatorQuery, OperatorWindow, SourceRate
from penstock.decide.autrascale.policy import AutraScalePolicy
from penstock.decide.manager.manager import ScalingManager
from penstock.decide.outcome import Outcome, Status
from penstock.decide.policy import Policy, Proposal, Scale
from penstock.decide.verdict import Accepted
from tests.decide.built import built

SECONDS = 10.0


@dataclass
class Application:
    """A chain of operators; `capacity` records/s for each instance, `work` seconds spent in each operator.

    The latency of an operator is its work over the idle share of its instances, as in a queue, and
    `crowding` seconds for each instance, so that more is not always better.
    `outside_limit` is what some service after the sink takes, whatever the size.
    """

    rate: float
    capacity: dict[str, float]
    work: dict[str, float]
    held: dict[str, int]
    crowding: float = 0.0
    outside_limit: float = float("inf")
    accept: Callable[[dict[str, int]], bool] = lambda size: True
    now: float = 0.0
    backlog: float = 0.0
    changes: list[tuple[float, dict[str, int]]] = field(default_factory=list)
    answers: list[Proposal | NotReady] = field(default_factory=list)

    @property
    def graph(self) -> LogicalGraph:
        names = ["source", *self.capacity]
        return LogicalGraph(names, pairwise(names))

    def throughput(self) -> float:
        most = min(self.held[name] * self.capacity[name] for name in self.capacity)
        return min(self.rate, most, self.outside_limit)

    def latency(self, size: dict[str, int] | None = None) -> float:
        size = size or self.held
        total = 0.0
        for name, seconds in self.work.items():
            idle = max(0.02, 1 - self.rate / (size[name] * self.capacity[name]))
            total += seconds / idle + self.crowding * size[name]
        return total

    def useful_share(self, name: str) -> float:
        """A sink that waits for a service outside is busy all the time, and seems slow."""
        if name == list(self.capacity)[-1] and self.throughput() >= self.outside_limit:
            return 1.0
        return self.throughput() / (self.held[name] * self.capacity[name])

    def window(self) -> OperatorWindow:
        observed, graph = self.throughput(), self.graph
        rows = [InstanceMetrics("source", "0", 0, observed * SECONDS, SECONDS / 2)]
        for name in self.capacity:
            each = observed * SECONDS / self.held[name]
            rows += [
                InstanceMetrics(name, str(number), each, each, SECONDS * self.useful_share(name))
                for number in range(self.held[name])
            ]
        self.now += SECONDS
        metrics = MetricWindow.of(graph, self.now - SECONDS, self.now, rows)
        sources = {"source": SourceRate(self.rate, observed, self.backlog)}
        query = OperatorQuery("q", "q", graph, sources, metrics, latency_seconds=self.latency())
        held = {"source": 1, **self.held}
        return OperatorWindow("app", self.now - SECONDS, self.now, held, (query,))

    def run(self, policy: Policy, windows: int) -> None:
        """Ask the policy window after window, and do what it says where it is accepted."""
        for _ in range(windows):
            answer = policy.propose(self.window())
            self.answers.append(answer)
            if isinstance(answer, Scale):
                wanted = {name: answer.parallelism[name] for name in self.capacity}
                if wanted != self.held and self.accept(wanted):
                    self.held = wanted
                    self.changes.append((self.now, wanted))

    def run_guarded(self, policy: Policy, manager: ScalingManager, windows: int) -> None:
        """The same with the scaling manager in between; a change takes effect at once."""
        for _ in range(windows):
            window = self.window()
            self.answers.append(policy.propose(window))
            verdict = manager.judge(self.now, window, self.answers[-1])
            if isinstance(verdict, Accepted):
                manager.action_started(self.now, verdict.action)
                wanted = verdict.action.parallelism
                self.held = {name: wanted[name] for name in self.capacity}
                self.changes.append((self.now, dict(self.held)))
                outcome = Outcome(Status.DONE, wanted, wanted, wanted, 0.0)
                manager.action_ended(self.now, verdict.action, outcome)


def three_operators(rate: float = 1_000.0, **changes: object) -> Application:
    """What throughput needs at 1,000 records/s without headroom: 4, 5 and 2 instances."""
    figures: dict[str, object] = {
        "rate": rate,
        "capacity": {"parse": 280.0, "enrich": 220.0, "store": 600.0},
        "work": {"parse": 0.010, "enrich": 0.040, "store": 0.005},
        "held": {"parse": 1, "enrich": 1, "store": 1},
        "crowding": 0.0005,
    }
    return Application(**{**figures, **changes})  # type: ignore[arg-type]


TARGET = 0.2
PLAIN = {"utilisation": 1.0, "latency_target": TARGET, "most": 20, "changes_per_hour": 3_600}
BASE = {"parse": 4, "enrich": 5, "store": 2}
"""What 1,000 records/s need."""


def policy(**changes) -> AutraScalePolicy:
    return built("autrascale", **{**PLAIN, **changes})


def scales(application: Application) -> list[Scale]:
    return [answer for answer in application.answers if isinstance(answer, Scale)]
