"""Two of one kind in virtual time: drivers of one name with one journal, and controllers of one pipeline."""

from __future__ import annotations

from penstock.journal.former_runs import settle_former_runs
from penstock.journal.leading import Leadership
from penstock.journal.store import Journal
from penstock.pipeline.actuator import BoardActuator
from penstock.pipeline.leader import close_left_open
from penstock.runtime.loop import Loop, LoopSettings
from penstock.runtime.ports import Ports
from penstock_lab.experiments.faults.disturbances import Disturbance
from penstock_lab.experiments.faults.matrix import DRIVER_KILLED
from penstock_lab.experiments.faults.rows import Effects
from penstock_lab.experiments.faults.worlds.world import Hand, Memory, PipelineWorld, World

LEASE_SECONDS = 30.0


class TwinWorld:
    """An application, and from the strike on a second one of the same name with the same journal.

    Its output and size are those of the first, which must not notice the second.
    """

    def __init__(self, make: type[World], journal: Journal, disturbance: Disturbance) -> None:
        self._make, self._journal, self._fault = make, journal, disturbance
        self._first = make(journal, Disturbance())
        self._second: World | None = None
        self.now, self.sizes = 0, self._first.sizes
        self._settle(self._first)

    @property
    def done(self) -> int:
        """How many actions the first has begun."""
        return self._first.done

    @property
    def is_paused(self) -> bool:
        """Whether one of them gave up."""
        return any(one.is_paused for one in (self._first, self._second) if one is not None)

    def is_right(self, size: object, usual: object) -> bool:
        """Tell whether the first has its size."""
        return self._first.is_right(size, usual)

    def output(self) -> object:
        """Return the output of the first."""
        return self._first.output()

    def tick(self, wall: float) -> None:
        """Let both loops come round."""
        if self._fault.is_on and self._second is None:
            self._second = self._make(self._journal, Disturbance())
            self._second.name = self._second.loop.application = "job-2"
            self._settle(self._second)
        self._first.tick(wall)
        if self._second is not None:
            self._second.tick(wall)

    def pass_second(self) -> None:
        """Let a second pass for both."""
        self.now += 1
        self._first.pass_second()
        if self._second is not None:
            self._second.pass_second()

    def effects(self, journal: Journal) -> Effects:
        """Tell what both have done, numbered apart."""
        own = self._first.effects(journal)
        other = self._second.effects(journal) if self._second is not None else Effects()
        apart = [tuple(1000 + number for number in numbers) for numbers in (other.intended, other.done)]
        return Effects((*own.intended, *apart[0]), (*own.done, *apart[1]), own.left_open + other.left_open)

    def close(self) -> None:
        """Nothing is left behind."""

    def _settle(self, world: World) -> None:
        """Close what dead runs of this name left open, as an autopilot does when it is attached."""
        settle_former_runs(self._journal, "twins", world.name, float(world.now))


class LedPipelineWorld(PipelineWorld):
    """A pipeline with two controllers: the first is frozen while the fault lasts, and wakes as a stranger.

    One that was killed is started again.
    """

    def build(self) -> None:
        """Make one loop for each, over the same board."""
        super().build()
        self._leaderships = [self._reach("first"), self._reach("second")]
        self._loops: list[Loop | None] = [None, None]
        self._terms, self._was_frozen = [0, 0], False

    def _reach(self, holder: str) -> Leadership:
        return Leadership(self.journal.leases, "pipeline", holder, LEASE_SECONDS)

    def tick(self, wall: float) -> None:
        """Let both come round; one that wakes works once with what it knew."""
        frozen = self.disturbance.is_on
        if self._was_frozen and not frozen:
            if self.disturbance.fault == DRIVER_KILLED:
                self._leaderships[0], self._loops[0] = self._reach("first again"), None
            elif self._loops[0] is not None:
                self._loops[0].tick(wall)
        self._was_frozen = frozen
        for number in (1,) if frozen else (0, 1):
            self._lead(number, wall)

    def _lead(self, number: int, wall: float) -> None:
        leadership = self._leaderships[number]
        lease = leadership.step(wall)
        if lease is None:
            self._loops[number] = None
            return
        if self._loops[number] is None or lease.term != self._terms[number]:
            self._terms[number] = lease.term
            held = BoardActuator(self._pipeline.board).held()
            close_left_open(self.journal, self.name if leadership.before else None, held, wall)
            self._loops[number] = self.loop = self._make_loop(leadership)
        loop = self._loops[number]
        assert loop is not None
        loop.tick(wall)

    def _make_loop(self, leadership: Leadership) -> Loop:
        record = Memory(self.journal.bind_to(lambda: leadership.lease), self.memory.intended)
        hand = Hand(BoardActuator(self._pipeline.board), record, self.hand.done)
        before = self.loop
        ports = Ports(before.source, before.policy, before.manager, record, hand)
        return Loop(self.name, ports, LoopSettings(before.settings.policy_interval, timeline_length=0))
