"""What a change of the job itself would bring, for whoever asks: more partitions, a limit per trigger."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from penstock.dataflow.window import EXECUTORS
from penstock.decide.partitions import advise_on_partitions, limit_first_batch

if TYPE_CHECKING:
    from penstock.dataflow.costs.foresight import Outlook
    from penstock.runtime.timeline import RecentTimeline
    from penstock.settings.model import Settings


class JobAdvice:
    """The sentences for the newest costs; they are computed once for all who ask."""

    def __init__(self, settings: Settings) -> None:
        self._utilisation, self._most = settings.goals.utilisation, settings.bounds.most
        self._known: tuple[Sequence[Outlook], tuple[str, ...]] = ((), ())

    def list(self, timeline: RecentTimeline) -> tuple[str, ...]:
        """Return a sentence for each change that is worth it, query by query."""
        outlooks, points = timeline.outlooks, timeline.points
        told_for, told = self._known
        if outlooks is not told_for:
            held = points[-1].parallelism.get(EXECUTORS, 0) if points else 0
            told = tuple(self._tell(outlooks, points[-1].slots, held)) if held else ()
            self._known = outlooks, told
        return told

    def _tell(self, outlooks: Sequence[Outlook], slots: int, executors: int) -> Iterator[str]:
        per_executor, total = max(1, round(slots / executors)), max(1, sum(one.slots for one in outlooks))
        for outlook in outlooks:
            share = max(1, slots * outlook.slots // total)
            most = self._most * per_executor
            found = (
                advise_on_partitions(outlook, self._utilisation, most, per_executor),
                limit_first_batch(outlook, share),
            )
            yield from (one.describe() for one in found if one is not None)
