"""Queries in real-time or continuous mode: not sized, but the slots that they need are known (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class _SlotsAtOnce:
    name: str
    mode: str
    tasks: int
    """0 while no job of it was seen."""


class RealTimeQueries:
    """The queries of an application that run in real-time or continuous mode, with their tasks.

    Such a query runs the tasks of all stages at once and for as long as it lives.
    """

    def __init__(self) -> None:
        self._needs: dict[str, _SlotsAtOnce] = {}

    def note(self, run_id: str, name: str, mode: str, running_jobs: Iterable[Mapping[str, Any]]) -> None:
        """Take in the jobs of a run that are under way; between two jobs the last ones count."""
        tasks = sum(max(int(job["numTasks"]), int(job["numActiveTasks"])) for job in running_jobs)
        known = self._needs.get(run_id)
        self._needs[run_id] = _SlotsAtOnce(name, mode, tasks or (known.tasks if known else 0))

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

    @property
    def warnings(self) -> tuple[str, ...]:
        """A warning for each query whose tasks are not known yet."""
        return tuple(
            f"query {need.name} runs in {need.mode}, and its tasks are not known yet: it has no slot reserved"
            for need in self._needs.values()
            if not need.tasks
        )

    def describe(self) -> str:
        """Return why nothing can be sized; empty if there is no such query."""
        return "; ".join(
            f"query {need.name} runs in {need.mode}, which Penstock does not size yet; "
            + (f"its {need.tasks} tasks all run at once" if need.tasks else "its tasks are not known yet")
            for need in self._needs.values()
        )
