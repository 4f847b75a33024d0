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
from penstock.journal.former_runs import KIND, identify_process, settle_former_runs
from penstock.journal.store import Journal
from penstock.migrate.mover import MoveProposer
from penstock.pipeline.actuator import BoardActuator
from penstock.runtime.loop import Loop, LoopSettings
from penstock.runtime.ports import Actuator, Ports, Source
from penstock.settings.model import Settings, load_settings
from penstock.simulate.loading import parse
from penstock.simulate.ports import VirtualActuator
from penstock.simulate.run import BatchSource
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
from penstock_lab.experiments.faults.worlds.strikes import Strike, StruckBatches

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
        self.journal, self._strike = journal, Strike(disturbance)
        self._done: list[int] = []
        self._former: list[str] = []
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
        """Let the loop come round, unless it hangs or has no driver; what it says of itself is kept."""
        if self.disturbance.hangs or self._strike.driver_is_down:
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
        runs = (*self._former, self.loop.application)
        left = max(0, sum(len(journal.unfinished(run)) for run in runs) - under_way)
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
        self.hand = Hand(actuator, self.memory, self._done)
        ports = Ports(_Passed(source, self.disturbance), policy, manager, self.memory, self.hand, mover)
        interval = settings.manager.policy_interval
        run = f"{self.name}-again" if self._former else self.name
        self.loop: Loop = Loop(run, ports, LoopSettings(policy_interval=interval, timeline_length=0))

    def succeed(self) -> None:
        """Make the loop of a driver that follows one that died, and settle what that one left open."""
        dead = {**identify_process(), "started": "before this one"}
        self.journal.remember(float(self.now), self.name, KIND, self.loop.application, dead)
        self._former.append(self.loop.application)
        self.start_loop()
        settle_former_runs(self.journal, self.name, self.loop.application, float(self.now))

    def start_loop(self) -> None:
        """Make `self.loop` over the application as it is."""
        raise NotImplementedError


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
        self._dataflow = StruckBatches(experiment, seed=1)
        self.start_loop()

    def start_loop(self) -> None:
        """Make the loop; what was seen before counts for nothing."""
        settings, source = self._dataflow.experiment.settings, BatchSource(self._dataflow, seed=1)
        source.observe(float(self.now))
        policy = self.choose_policy(make_policy(settings.run.policy, settings), settings)
        self.put_together(policy, VirtualActuator(self._dataflow), source, settings)

    def choose_policy(self, usual: Policy, settings: Settings) -> Policy:
        """Return the policy that decides."""
        return usual

    def advance(self) -> None:
        """Let batches run on."""
        self._dataflow.stands_still = not self._strike.pass_second(self.now, self)
        self._dataflow.advance(self.now + 1)

    def lose_executor(self) -> None:
        """Let one executor die."""
        if self._dataflow.instances[0] > 0:
            self._dataflow.change_size(-1)
            self._dataflow.missing += 1

    def bring_executor(self) -> None:
        """Let one come in place of a lost one, unless a change has brought it already."""
        if self._dataflow.missing:
            self._dataflow.change_size(1)
            self._dataflow.missing -= 1

    def slow_down(self, share: float) -> None:
        """Let one executor do this share of its work."""
        self._dataflow.share = share

    def end_driver(self) -> None:
        """Lose the batch under way, and all executors."""
        self._dataflow.begin_anew()

    def start_driver(self) -> None:
        """Begin again with as many executors as at the start."""
        self.succeed()

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
        self._missing, self._is_slow, self._count = 0, False, 0
        settings = load_settings(environment={}, arguments=SETTINGS)
        self._pipeline = VirtualPipeline(settings, clock=self.disturbance.wall)
        actuator = BoardActuator(self._pipeline.board)
        self.put_together(self._pipeline.policy, actuator, self._pipeline, settings)

    def advance(self) -> None:
        """Let a batch of each function run every few seconds; the input ends before the world does."""
        goes_on = self._strike.pass_second(self.now, self) and not self._missing
        if self.now % int(BATCH_SECONDS) == 0:
            self._pipeline.rate = RATE if self.now < ENDS_AT else 0.0
            self._count += 1
            (self._pipeline.pass_batch if goes_on and not self._skips() else self._pipeline.stand_still)()

    def _skips(self) -> bool:
        return self._is_slow and self._count % 2 == 0

    def lose_executor(self) -> None:
        """Fail the batches until another executor has come."""
        self._missing += 1

    def bring_executor(self) -> None:
        """Go on."""
        self._missing -= 1

    def slow_down(self, share: float) -> None:
        """Let every second batch take as long as two: it waits for the slow executor."""
        self._is_slow = share < 1

    def end_driver(self) -> None:
        """Stand still: the functions are those of the driver."""

    def start_driver(self) -> None:
        """Nothing begins here; who leads next says so."""

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
