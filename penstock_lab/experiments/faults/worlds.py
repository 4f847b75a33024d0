"""Applications in virtual time that a real loop steers: one that grows, one whose state moves, a pipeline.

The loop, the manager, the policy, the actuator's machines and the journal are the product's own. A world
tells at its end what it has put out, and which size it had at each second.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.act.actuator import ExecutorActuator, QueryBatches
from penstock.act.scaling import ScalingSettings
from penstock.dataflow.graph import LogicalGraph
from penstock.dataflow.metrics import BatchExecution
from penstock.dataflow.moves import Plan, Strategy
from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import (
    EXECUTORS,
    ApplicationWindow,
    ExecutorState,
    SlotQuery,
    SlotWindow,
    SourceRate,
)
from penstock.decide.manager.manager import ScalingManager
from penstock.decide.outcome import Outcome
from penstock.decide.policy import Action, Hold, MoveState, Policy
from penstock.decide.registry import make_policy
from penstock.journal.store import Journal
from penstock.migrate.bins import BinState, StateView
from penstock.migrate.migration import MigrationProgress, advance_migration, begin_migration, join_outcomes
from penstock.migrate.mover import MoveProposer, MovesEnded, Planned
from penstock.migrate.plan import propose_moves, schedule
from penstock.migrate.planner import balance
from penstock.pipeline.actuator import BoardActuator
from penstock.runtime.loop import Loop, LoopSettings
from penstock.runtime.ports import Actuator, Ports, Source
from penstock.settings.model import Settings, load_settings
from penstock.simulate.loading import parse
from penstock.simulate.ports import VirtualActuator
from penstock.simulate.run import build_application
from penstock.simulate.virtual import READ
from penstock_lab.experiments.faults.disturbances import Disturbance
from penstock_lab.experiments.faults.rows import Effects
from penstock_lab.experiments.faults.state_cluster import QUERY, Cluster, a_bin, a_worker, find_out_of_order
from penstock_lab.experiments.faults.virtual_pipeline import (
    BATCH_SECONDS,
    COSTS,
    RATE,
    WORDS,
    VirtualPipeline,
)

SECONDS, INTERVAL = 900, 10.0
"""How long a world runs, and its policy interval."""
SETTINGS: dict[str, object] = {"scale_down_delay": 0, "policy_interval": INTERVAL}
GROWS_AT, ENDS_AT = 120, 800
SCENARIO = """
duration: %(seconds)d
batches: {trigger: 10s, serial: 0.5s, executors: 2, cores: 2}
sources:
  events: {rate: "steps:0=350,%(grows_at)d=%(rate)d,%(ends_at)d=0", tasks: 8, service_time: 0.2ms}
operators:
  count: {inputs: [events], service_time: 6ms, tasks: 48, task_time: 5ms}
scaling: {kind: live, pause: 15s}
settings: {policy_interval: 10s, scale_down_delay: 60s}
"""


class Memory:
    """A record that notes which intents were written, whatever becomes of the journal afterwards."""

    def __init__(self, journal: Journal, intended: list[int] | None = None) -> None:
        """Several records that share a list number their intents together."""
        self._journal = journal
        self.intended: list[int] = [] if intended is None else intended

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    def intend(self, *arguments: Any) -> int:
        """Write an intent; numbers begin anew in a journal that was deleted, so each gets one of its own."""
        number = self._journal.intend(*arguments)
        self.intended.append(len(self.intended) + 1)
        return number


class Hand:
    """An actuator that notes what it did."""

    def __init__(self, actuator: Actuator, memory: Memory, done: list[int] | None = None) -> None:
        self._actuator, self._memory = actuator, memory
        self.done: list[int] = [] if done is None else done

    def begin(self, now: float, action: Action) -> None:
        """Begin an action, and note for which intent; without a new one it is done twice."""
        self.done.append(self._memory.intended[-1] if self._memory.intended else 0)
        self._actuator.begin(now, action)

    def poll(self, now: float) -> Outcome | None:
        """Ask how it stands."""
        return self._actuator.poll(now)

    def abandon(self) -> None:
        """Give it up."""
        self._actuator.abandon()

    def held(self) -> Mapping[str, int]:
        """Return what is there."""
        return self._actuator.held()


class World(ABC):
    """An application in virtual time with its loop; `sizes` has what it held at each second."""

    name = "job"

    def __init__(self, journal: Journal, disturbance: Disturbance) -> None:
        self.now, self.disturbance = 0, disturbance
        self.sizes: list[object] = []
        self.errors: list[str] = []
        self.journal = journal
        self.memory = Memory(journal)
        self.build()

    @abstractmethod
    def build(self) -> None:
        """Make the application and `self.loop`."""

    @abstractmethod
    def advance(self) -> None:
        """Let a second pass."""

    @abstractmethod
    def size(self) -> object:
        """Return what is held now."""

    @abstractmethod
    def output(self) -> object:
        """Return what tells two outputs apart."""

    def is_right(self, size: object, usual: object) -> bool:
        """Tell whether a size is right, given that of an undisturbed run."""
        return size == usual

    def tick(self, wall: float) -> None:
        """Let the loop come round, unless it hangs; what it says of itself is kept."""
        if self.disturbance.hangs:
            return
        cycle = self.loop.tick(wall)
        if cycle.error:
            self.errors.append(cycle.error)

    def pass_second(self) -> None:
        """Let a second pass, and note what is held."""
        self.advance()
        self.now += 1
        self.sizes.append(self.size())

    @property
    def done(self) -> int:
        """How many actions were begun."""
        return len(self.hand.done)

    @property
    def is_paused(self) -> bool:
        """Whether the loop gave up."""
        return self.loop.paused is not None

    def close(self) -> None:
        """Give back what it holds."""
        self.errors.clear()

    def effects(self, journal: Journal) -> Effects:
        """Tell what was intended, done and left open."""
        under_way = self.loop.action_under_way is not None
        left = max(0, len(journal.unfinished(self.name)) - under_way)
        return Effects(tuple(self.memory.intended), tuple(self.hand.done), left)

    def put_together(
        self,
        policy: Policy,
        actuator: Actuator,
        source: Source,
        settings: Settings,
        mover: MoveProposer | None = None,
    ) -> None:
        """Make the loop of these parts."""
        manager = ScalingManager(settings.manager, settings.bounds, settings.goals)
        self.hand = Hand(actuator, self.memory)
        ports = Ports(_Passed(source, self.disturbance), policy, manager, self.memory, self.hand, mover)
        interval = settings.manager.policy_interval
        self.loop: Loop = Loop(self.name, ports, LoopSettings(policy_interval=interval, timeline_length=0))


class _Passed:
    """A source behind which a fault may stand."""

    def __init__(self, source: Source, disturbance: Disturbance) -> None:
        self._source, self._disturbance = source, disturbance

    def observe(self, now: float) -> ApplicationWindow | NotReady:
        """Return what the fault leaves of a window."""
        return self._disturbance.observe(now, self._source.observe)


class GrowingWorld(World):
    """Micro-batches on executors, whose load rises once and ends."""

    rate = 700
    """Records a second that it rises to."""

    def build(self) -> None:
        """Make the application of the scenario, with Penstock's default policy."""
        times = {"seconds": SECONDS, "grows_at": GROWS_AT, "ends_at": ENDS_AT, "rate": self.rate}
        experiment = replace(parse(SCENARIO % times, Path("faults.yaml")), name=self.name)
        self._dataflow, source = build_application(experiment, seed=1)
        settings = experiment.settings
        policy = self.choose_policy(make_policy(settings.run.policy, settings), settings)
        self.put_together(policy, VirtualActuator(self._dataflow), source, settings)

    def choose_policy(self, usual: Policy, settings: Settings) -> Policy:
        """Return the policy that decides."""
        return usual

    def advance(self) -> None:
        """Let batches run on."""
        self._dataflow.advance(self.now + 1)

    def size(self) -> object:
        """Return the executors while there is input; afterwards fewer and fewer are right."""
        return self._dataflow.parallelism()[EXECUTORS] if self.now <= ENDS_AT else 0

    def output(self) -> object:
        """Return the records that were read, of which all are offered before the end."""
        return round(float(self._dataflow.seen[: self.now, READ].sum()))


class PipelineWorld(World):
    """Two functions joined by a topic, which grow from one instance each to what their input needs."""

    def build(self) -> None:
        """Make the pipeline, with the real monitor, board and actuator."""
        settings = load_settings(environment={}, arguments=SETTINGS)
        self._pipeline = VirtualPipeline(settings, clock=self.disturbance.wall)
        actuator = BoardActuator(self._pipeline.board)
        self.put_together(self._pipeline.policy, actuator, self._pipeline, settings)

    def advance(self) -> None:
        """Let a batch of each function run every few seconds; the input ends before the world does."""
        if self.now % int(BATCH_SECONDS) == 0:
            self._pipeline.rate = RATE if self.now < ENDS_AT else 0.0
            self._pipeline.pass_batch()

    def size(self) -> object:
        """Return the instances of each function while there is input."""
        return tuple(self._pipeline.board.wanted.values()) if self.now <= ENDS_AT else ()

    def is_right(self, size: object, usual: object) -> bool:
        """Tell whether each function keeps up and is within the band in which the manager leaves it alone.

        How many there are within it depends on the backlog that they had to catch up with.
        """
        if not isinstance(size, tuple) or not size:
            return size == usual
        busy = (RATE * COSTS["split"], RATE * WORDS * COSTS["count"])
        low = load_settings(environment={}, arguments=SETTINGS).manager.utilisation_low
        return all(work <= count <= work / low for work, count in zip(busy, size, strict=True))

    def output(self) -> object:
        """Return the records that each function has served."""
        return {name: round(served) for name, served in self._pipeline.served.items()}


BINS = 12


class MovingWorld(World):
    """A query with state, of which one executor has all at first; batches go on while the loop spreads it."""

    def build(self) -> None:
        """Make the cluster; its first worker has all bins."""
        view = self._first_view()
        self.cluster = Cluster.of(view)
        settings = load_settings(environment={}, arguments=SETTINGS)
        self._mover = ClusterMover(self.cluster, settings)
        actuator = ExecutorActuator(_Pool(self.cluster), ScalingSettings(), mover=self._mover)
        self.put_together(_Holding(), actuator, self, settings, mover=self._mover)

    @staticmethod
    def _first_view() -> StateView:
        bins = tuple(BinState(a_bin(number), "1", 10, 100, 1.0) for number in range(BINS))
        return StateView(QUERY, "counts", 10, bins, tuple(a_worker(name) for name in ("1", "2", "3")))

    def observe(self, now: float) -> SlotWindow:
        """Return a window in which the size is right."""
        batches = tuple(
            BatchExecution(self.cluster.batch - place, now - BATCH_SECONDS * (1 + place), 1.0, 6, 500, ())
            for place in (1, 0)
        )
        graph = LogicalGraph(["read", "count"], [("read", "count")])
        rates = {"read": SourceRate(100.0, 100.0)}
        query = SlotQuery(QUERY, "counts", graph, rates, batches=batches, period_seconds=BATCH_SECONDS)
        executors = self._mover.executors()
        held = {EXECUTORS: len(executors)}
        return SlotWindow(
            self.name, now - INTERVAL, now, held, (query,), executors=executors, slots_per_executor=2
        )

    def advance(self) -> None:
        """Let a batch run every few seconds."""
        if self.now % int(BATCH_SECONDS) == 0:
            self._mover.run_batch()

    def size(self) -> object:
        """Return how many bins the fullest worker has."""
        return max(executor.state_bins for executor in self._mover.executors())

    def output(self) -> object:
        """Return how often each bin saw each batch, and what came out of order."""
        seen = sorted({(run.batch, run.bin.partition) for run in self.cluster.executions})
        return tuple(seen), find_out_of_order(self.cluster.executions)


class ClusterMover:
    """A mover over the made-up cluster: the plans and the migration's machine are the product's."""

    def __init__(self, cluster: Cluster, settings: Settings) -> None:
        self._cluster, self._settings = cluster, settings.migration
        self._progress: MigrationProgress | None = None
        self._stop: str | None = None

    def obstacle(self) -> str | None:
        """Nothing stands in the way."""
        return None

    def executors(self) -> tuple[ExecutorState, ...]:
        """Return the workers as executors with their bins."""
        held = list(self._cluster.locations.values())
        names = sorted(self._cluster.workers)
        return tuple(ExecutorState(name, f"host-{name}", 2, state_bins=held.count(name)) for name in names)

    def views(self) -> tuple[StateView, ...]:
        """Look where the state lies."""
        bins = tuple(BinState(bin_, at, 10, 100, 1.0) for bin_, at in sorted(self._cluster.locations.items()))
        return (StateView(QUERY, "counts", self._cluster.batch, bins, tuple(self._cluster.workers.values())),)

    def plan_rebalancing(self, strategy: Strategy | None = None) -> Planned:
        """Plan to spread it evenly."""
        (view,) = self.views()
        chosen = strategy or self._settings.strategy
        moves = balance(view, self._settings.imbalance)
        plan = schedule(view, moves, chosen, self._settings.following(chosen), "state lies unevenly")
        return [(view, plan)] if plan.moves else []

    def plan_draining(self, executor_ids: Sequence[str], strategy: Strategy | None = None) -> Planned:
        """Nothing is released here."""
        return []

    def propose(self, now: float, window: ApplicationWindow) -> MoveState | None:
        """Propose to spread the state while it lies unevenly."""
        planned = self.plan_rebalancing() if not self.moving() else []
        return propose_moves(planned, "state lies unevenly") if planned else None

    def begin(self, plans: Sequence[Plan]) -> None:
        """Begin to move."""
        self._stop = None
        self._progress = begin_migration(plans[0], 1.0, self._cluster.look(), self._settings)

    def moving(self) -> bool:
        """Tell whether state moves."""
        return self._progress is not None and self._progress.outcome is None

    def ended(self) -> MovesEnded | None:
        """Tell how it ended."""
        if self._progress is None or self._progress.outcome is None:
            return None
        return join_outcomes([self._progress.outcome])

    def standing(self) -> dict[str, Any] | None:
        """Nobody looks."""
        return None

    def stop(self, reason: str) -> bool:
        """Stop at the next boundary."""
        self._stop = reason
        return self.moving()

    def run_batch(self) -> None:
        """Run a batch, and advance the migration at its boundary."""
        if self.moving() and self._progress is not None:
            self._cluster.obey(self._progress.instructions)
        boundary = self._cluster.run()
        if self.moving() and self._progress is not None:
            self._progress = advance_migration(self._progress.migration, replace(boundary, stop=self._stop))


class _Pool:
    """The executors of the made-up cluster, which stay as they are."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def executors(self, bins: Mapping[str, int]) -> tuple[ExecutorState, ...]:
        """Return the workers."""
        return tuple(ExecutorState(name, f"host-{name}", 2) for name in sorted(self._cluster.workers))

    def request_total(self, total: int) -> None:
        """Nothing is asked for."""

    def stop_using(self, executor_ids: Sequence[str]) -> None:
        """Nothing is released."""

    def release(self, executor_ids: Sequence[str]) -> None:
        """Nothing is released."""

    def batches(self) -> Mapping[str, QueryBatches]:
        """No batch needs anybody."""
        return {}


class _Holding:
    """A policy that finds every size right."""

    name = "holding"

    def propose(self, window: ApplicationWindow) -> Hold:
        """Hold."""
        return Hold("the size is right")
