"""Queries in real-time or continuous mode: not sized, but the slots that they need are known (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

FATE = "Spark ends a query that is short of them (CONCURRENT_SCHEDULER_INSUFFICIENT_SLOT)"


@dataclass(frozen=True, slots=True)
class SlotsAtOnce:
    """The slots that the tasks of all stages take together, since they run at once, and those that are held.

    `stages` has the tasks of each stage, or of all together where no more is known.
    """

    stages: tuple[int, ...]
    held: int

    @property
    def needed(self) -> int:
        """One slot for each task."""
        return sum(self.stages)

    @property
    def missing(self) -> int:
        """The slots without which the query does not start, or ends."""
        return max(0, self.needed - self.held)

    def describe(self) -> str:
        """Say what is needed, held and missing."""
        sum_of = f" ({' + '.join(map(str, self.stages))})" if len(self.stages) > 1 else ""
        needs = f"{self.needed} slots{sum_of} are needed at once, one for each task: {_are(self.held)} held"
        return f"{needs}, {_are(self.missing)} missing, and {FATE}" if self.missing else needs


def _are(count: int) -> str:
    return f"{count} is" if count == 1 else f"{count} are"


@dataclass(frozen=True, slots=True)
class _Tasks:
    name: str
    mode: str
    tasks: int
    """0 while no job of it was seen."""


class RealTimeQueries:
    """The queries of an application that run in real-time or continuous mode, with their tasks.

    Such a query runs the tasks of all stages at once and for as long as it lives.
    """

    def __init__(self) -> None:
        self._needs: dict[str, _Tasks] = {}

    def note(self, run_id: str, name: str, mode: str, running_jobs: Iterable[Mapping[str, Any]]) -> None:
        """Take in the jobs of a run that are under way; between two jobs the last ones count."""
        tasks = sum(max(int(job["numTasks"]), int(job["numActiveTasks"])) for job in running_jobs)
        known = self._needs.get(run_id)
        self._needs[run_id] = _Tasks(name, mode, tasks or (known.tasks if known else 0))

    def keep(self, runs: set[str]) -> None:
        """Forget all runs but these."""
        self._needs = {run_id: need for run_id, need in self._needs.items() if run_id in runs}

    @property
    def slots(self) -> int:
        """The slots that they need together."""
        return sum(need.tasks for need in self._needs.values())

    @property
    def names(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(need.name for need in self._needs.values())

    def warn(self, held: int) -> tuple[str, ...]:
        """Return a warning for each query whose tasks are not known yet, and one where slots are missing."""
        unknown = [
            f"query {need.name} runs in {need.mode}, and its tasks are not known yet: it has no slot reserved"
            for need in self._needs.values()
            if not need.tasks
        ]
        at_once = self._count(held)
        short = [f"for {', '.join(self.names)} {at_once.describe()}"] if at_once.missing else []
        return (*unknown, *short)

    def describe(self, held: int) -> str:
        """Return why nothing can be sized; empty if there is no such query."""
        told = [
            f"query {need.name} runs in {need.mode}, which Penstock does not size yet; "
            + (f"its {need.tasks} tasks all run at once" if need.tasks else "its tasks are not known yet")
            for need in self._needs.values()
        ]
        return "; ".join([*told, *([self._count(held).describe()] if self.slots else [])])

    def _count(self, held: int) -> SlotsAtOnce:
        return SlotsAtOnce(tuple(need.tasks for need in self._needs.values() if need.tasks), held)
