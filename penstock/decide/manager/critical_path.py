"""A guardrail that reads the critical path and rejects growth that could not shorten a batch.

Every doubt lets the growth pass. Each query must have shown, in its newest batch and in the one analysed
before it, on the slots that are held now, that slots without limit would save next to nothing, and why: the
driver has nearly all of the critical path, one task outlasts all others, or one executor is slow.
"""

from __future__ import annotations

import math

from penstock.dataflow.window import EXECUTORS, ApplicationWindow, CriticalWindow, SlotQuery, SlotWindow
from penstock.decide.manager.guardrails import Opinion, Situation, limit_change
from penstock.decide.policy import Scale

EVIDENCE = 2
LITTLE_TASK_SHARE = 0.3
MOST_OF_THE_PATH = 0.5
LITTLE_GAIN = 0.1
"""The share of a batch that slots without limit may save, by the replay, and still count as no help."""
MORE_RECORDS = 1.25
"""A batch that is to hold this many times the records of those seen may have another critical path."""
SAME_RECORDS = 0.02


class UselessGrowth:
    """Rejects growth where the driver, one task that outlasts the others, or a slow executor holds all up."""

    name = "critical-path"

    def apply(self, scale: Scale, situation: Situation) -> Opinion:
        """Keep what is held where more slots would help no query."""
        if scale.parallelism.get(EXECUTORS, 0) <= situation.held.get(EXECUTORS, 0):
            return scale
        reason = explain_useless_growth(situation.window)
        if reason is None:
            return scale
        return limit_change(
            self.name, scale, situation.held, lambda _, wanted, held: min(wanted, held), reason
        )


def explain_useless_growth(window: ApplicationWindow) -> str | None:
    """Say why more slots would help none of the queries; None where they might help one."""
    if not isinstance(window, SlotWindow) or not window.queries:
        return None
    reasons = [_explain_query(query, window.slots) for query in window.queries]
    return None if None in reasons else "; ".join(reason for reason in reasons if reason)


def _explain_query(query: SlotQuery, slots: int) -> str | None:
    seen = query.critical[-EVIDENCE:]
    if len(seen) < EVIDENCE or not query.batches or seen[-1].batch_id != query.batches[-1].batch_id:
        return None
    if any(one.slots != slots or one.gain_of_slots >= LITTLE_GAIN for one in seen) or _will_grow(query, seen):
        return None
    if all(one.task_share < LITTLE_TASK_SHARE for one in seen):
        share = 1 - seen[-1].task_share
        return (
            f"{query.name} is bound by its driver ({share:.0%} of the critical path), which more slots "
            "do not shorten"
        )
    return _explain_hot_task(query, seen) or _explain_slow_executor(query, seen)


def _explain_slow_executor(query: SlotQuery, seen: tuple[CriticalWindow, ...]) -> str | None:
    slow = seen[-1].slow_executor
    if slow is None or any(
        one.slow_executor is None
        or one.slow_executor.executor != slow.executor
        or one.slow_executor.share < MOST_OF_THE_PATH
        for one in seen
    ):
        return None
    return (
        f"{query.name} waits for executor {slow.executor}, whose tasks of {slow.operator} take "
        f"{slow.times_others:.1f} times those of the others: more executors do not make it faster"
    )


def _explain_hot_task(query: SlotQuery, seen: tuple[CriticalWindow, ...]) -> str | None:
    hot = seen[-1].hot_task
    if hot is None or any(
        one.hot_task is None or one.hot_task.operator != hot.operator or one.hot_task.share < MOST_OF_THE_PATH
        for one in seen
    ):
        return None
    return (
        f"{query.name} waits for one task of {hot.operator} (partition {hot.partition} on executor "
        f"{hot.executor}, {hot.times_median:.1f} times the median), which more slots do not shorten"
    )


def _will_grow(query: SlotQuery, seen: tuple[CriticalWindow, ...]) -> bool:
    """Tell whether coming batches hold more records than those seen, which then tell little about them.

    A query whose source limits its batches goes on as before, however much is offered.
    """
    offered = sum(rate.offered_per_second for rate in query.sources.values())
    backlog = sum(rate.backlog_records for rate in query.sources.values())
    read = seen[-1].input_records
    if not math.isfinite(offered + backlog):
        return True
    limited = backlog > read > 0 and _is_same(read, seen[-2].input_records)
    span = max(query.period_seconds or 0.0, seen[-1].end - seen[-1].start)
    return not limited and offered * span + backlog > MORE_RECORDS * read


def _is_same(one: float, other: float) -> bool:
    return abs(one - other) <= SAME_RECORDS * max(one, other)
