"""Applications in virtual time that a real loop steers: what all share, one that grows, and a pipeline.

The loop, the manager, the policy, the actuator's machines and the journal are the product's own. A world
tells at its end what it has put out, and which size it had at each second.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import (
    EXECUTORS,
    ApplicationWindow,
)
from penstock.decide.manager.manager import ScalingManager
from penstock.decide.outcome import Outcome
from penstock.decide.policy import Action, Policy
from penstock.decide.registry import make_policy
from penstock.journal.store import Journal
from penstock.migrate.mover import MoveProposer
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
