"""What was on the critical path of one batch: what all else waited for, not what was merely busy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class HotTask:
    """The longest task of the operator with most of the task time, where it is far longer than the others.

    `share` is what its slot has of the critical path.
    """

    operator: str
    executor: str
    partition: int
    seconds: float
    times_median: float
    share: float


@dataclass(frozen=True, slots=True)
class SlowExecutor:
    """An executor whose tasks take far longer than those of the same operator elsewhere, for no more records.

    `share` is what its slots have of the critical path.
    """

    executor: str
    operator: str
    times_others: float
    share: float


@dataclass(frozen=True, slots=True)
class CriticalWindow:
    """Critical participation over one batch of a query, from its trigger to its end.

    The shares of `activity` sum to 1, and so do those of `causes`; those of `operator` are not divided by its
    instances. `task_share` is
    what tasks have of the path, the rest is the driver's. `replayed_seconds` is the batch replayed on the
    slots it had, `least_seconds` on as many as it could use.
    """

    batch_id: int
    start: float
    end: float
    slots: int
    input_records: float
    activity: Mapping[str, float]
    worker: Mapping[str, float]
    operator: Mapping[str, float]
    task_share: float
    replayed_seconds: float
    least_seconds: float
    hot_task: HotTask | None
    answer: str
    slow_executor: SlowExecutor | None = None
    causes: Mapping[str, float] = field(default_factory=dict)

    @property
    def gain_of_slots(self) -> float:
        """The share of the batch's time that slots without limit could save."""
        return max(0.0, 1 - self.least_seconds / self.replayed_seconds) if self.replayed_seconds > 0 else 0.0


def top(shares: Mapping[str, float]) -> tuple[str, float] | None:
    """The largest share with its name."""
    return max(shares.items(), key=lambda item: item[1], default=None)


def plain_critical(found: CriticalWindow) -> dict[str, object]:
    """What people and the journal keep of it: the answer in words, the causes, the largest of each kind."""
    largest = {"activity": top(found.activity), "worker": top(found.worker), "operator": top(found.operator)}
    return {
        "batch_id": found.batch_id,
        "at": found.end,
        "seconds": found.end - found.start,
        "causes": dict(found.causes),
        "answer": found.answer,
        "task_share": found.task_share,
        "gain_of_slots": found.gain_of_slots,
        **{kind: {"name": one[0], "share": one[1]} for kind, one in largest.items() if one},
    }
