"""Trials in virtual time: a world runs undisturbed once, and then disturbed from several moments on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Protocol

from penstock.journal.store import Journal
from penstock_lab.experiments.faults.disturbances import Disturbance
from penstock_lab.experiments.faults.journals import JournalPlace, open_place
from penstock_lab.experiments.faults.matrix import FaultCell
from penstock_lab.experiments.faults.rows import Effects, Shown, make_row
from penstock_lab.experiments.faults.worlds.world import ENDS_AT, SECONDS
from penstock_lab.experiments.measurement import Row

LASTS = 60
"""Seconds that a fault lasts."""
WITHIN = {"fleet": 400.0}
"""Seconds after the end of a fault in which the right size is to be there. A fleet's controller takes
executors away only after thirty windows of ten seconds, and a change takes 15 s."""
USUALLY_WITHIN = 180.0
"""Nine windows of ten seconds are needed at most, of which those of the fault and of the warm-up count for
nothing, and a change takes 15 s."""
VIRTUAL = "virtual time, real loop and journal"


class AnyWorld(Protocol):
    """A world in virtual time: one application, or several that count as one."""

    now: int
    sizes: list[object]

    @property
    def done(self) -> int:
        """How many actions were begun."""

    @property
    def is_paused(self) -> bool:
        """Whether a loop gave up."""

    def tick(self, wall: float) -> None:
        """Let the loops come round."""

    def pass_second(self) -> None:
        """Let a second pass."""

    def is_right(self, size: object, usual: object) -> bool:
        """Tell whether a size is right, given that of an undisturbed run."""

    def output(self) -> object:
        """Return what tells two outputs apart."""

    def effects(self, journal: Journal) -> Effects:
        """Tell what was intended, done and left open."""

    def close(self) -> None:
        """Give back what it holds."""


MakeWorld = Callable[[Journal, Disturbance], AnyWorld]


class FaultedRun:
    """One run of a world under a fault that begins at a moment."""

    def __init__(self, make: MakeWorld, place: JournalPlace, fault: str, strike_at: int | None) -> None:
        self._place, self._strike_at = place, strike_at
        self._disturbance = Disturbance(fault)
        self._journal = place.open()
        self.world = make(self._journal, self._disturbance)
        self.begun_at: list[int] = []

    def run(self) -> None:
        """Run to the end."""
        with closing(self._journal), closing(self.world):
            while self.world.now < SECONDS:
                self._step()
            self._left = self.world.effects(self._journal)

    def _step(self) -> None:
        now, begun = self.world.now, self.world.done
        if now == self._strike_at:
            self._disturbance.strike(now)
            self._place.strike()
        if self._strike_at is not None and now == self._strike_at + LASTS:
            self._place.mend()
            self._disturbance.mend(now)
        self.world.tick(self._disturbance.wall(float(now)))
        self.begun_at += [now] * (self.world.done - begun)
        self.world.pass_second()

    def show(self, right: object, usual: float) -> Shown:
        """Tell what the run has shown; `usual` is when an undisturbed one has the right size to stay."""
        after = max(usual, (self._strike_at or 0) + LASTS)
        return Shown(
            self.world.output(),
            self._left,
            is_alive=not self.world.is_paused,
            seconds_to_recover=find_recovery(self.judge_sizes(right), after),
        )

    def judge_sizes(self, right: object) -> list[bool]:
        """Tell for each second with input whether the size was right."""
        return [self.world.is_right(size, right) for size in self.world.sizes[:ENDS_AT]]


def find_recovery(is_right: Sequence[bool], after: float) -> float | None:
    """Return the seconds after a moment from which on all is right to the end; None if never."""
    wrong = [second for second, right in enumerate(is_right) if not right]
    since = wrong[-1] + 1 if wrong else 0
    return None if since >= len(is_right) else max(0.0, since - after)


def try_world(cell: FaultCell, make: MakeWorld, moments: int = 4) -> Row:
    """Run a world undisturbed, and disturbed around the moments at which it acts."""
    with open_place() as place:
        calm = FaultedRun(make, place, "", None)
        calm.run()
    right = calm.world.sizes[ENDS_AT - 1]
    usual = find_recovery(calm.judge_sizes(right), 0.0) or 0.0
    undisturbed = calm.show(right, usual)
    first = calm.begun_at[0] if calm.begun_at else LASTS
    runs = []
    for strike_at in choose_moments(first)[:moments]:
        with open_place(cell.fault) as place:
            course = FaultedRun(make, place, cell.fault, strike_at)
            course.run()
            runs.append(course.show(right, usual))
    return make_row(cell, undisturbed, runs, WITHIN.get(cell.part, USUALLY_WITHIN), VIRTUAL)


def choose_moments(acts_at: int) -> list[int]:
    """Choose when faults begin: in an action under way, just before one, at the start, and long after."""
    return [acts_at + 1, max(0, acts_at), 0, acts_at + 300]
